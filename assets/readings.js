// What the map tells of each square, its legend, and the list to choose from.

const FATES = { k: "#004488", x: "#66ccee", l: "#ddaa33", r: "#bb5566" };
const LENDERS = { k: "#004488", I: "#aa3377", C: "#228833", B: "#ddaa33" };
const scale = (share) => (share === undefined || isNaN(share) ? undefined : cividis(share));

// name: in the list; title, says: what one sees; ends: of the colour scale, where there is one; fates: in the legend,
// with their colours; shade(lane, square): a colour, undefined where there is nothing to tell; mark: other than the fate.
const READINGS = {
  chance: {
    name: "chance",
    title: "How sure was the check?",
    says: "Chance that a guess for the square is kept.",
    ends: ["0", "1"],
    fates: "drxl",
    shade: (lane, square) => scale(acceptance(lane, square, supposed)),
  },
  tokens: {
    name: "tokens per check",
    title: "What did a check bring?",
    says: "Tokens that the pass which drew the square brought.",
    ends: ["1", "8 or more"],
    fates: "rxl",
    shade: (lane, square) => scale((lane.squares[square].round.end - lane.squares[square].round.start - 1) / 7),
  },
  fate: {
    name: "who decided",
    title: "Who decided?",
    says: "How the square got its token.",
    fates: "krxld",
    colours: FATES,
    shade: (lane, square) => FATES[lane.squares[square].fate],
  },
  lender: {
    name: "who lent",
    title: "Who lent?",
    says: "Whose probability kept a guess that the exact rule had refused.",
    fates: "kICBrxd",
    colours: LENDERS,
    shade: (lane, square) => LENDERS[lentBy(lane, square)],
    mark: lentBy,
  },
  entropy: {
    name: "entropy",
    title: "How sure was the model?",
    says: "Entropy of the model’s law: among how many equally likely tokens it was choosing.",
    ends: ["1 token", "55 or more"], // e to the power 4
    fates: "rxl",
    shade: (lane, square) => {
      const { notes, start } = lane.squares[square].round;
      return scale(notes.entropy?.values[square - start] / 4);
    },
  },
};

let reading = READINGS.chance;
let supposed; // chance of a guess under another rule, none where the map shows what was
let flipped = new Set(); // squares that would end differently

function look(lane, square) {
  const mark = flipped.has(square) ? "c" : (reading.mark?.(lane, square) ?? lane.squares[square].fate);
  return [reading.shade(lane, square), MARKS[mark]];
}

// Writes the legend anew, and what changed on the map.
function renewMap() {
  write(find(".map summary"), "textContent", reading.title);
  find(".scale").hidden = !reading.ends;
  find(".scale").firstChild.textContent = reading.ends?.[0] ?? "";
  find(".scale").lastChild.textContent = reading.ends?.[1] ?? "";
  find(".legend p").textContent = supposed && reading === READINGS.chance ? "The same chance under the other rule." : reading.says;
  for (const item of find(".legend ul").children) {
    const { fate } = item.dataset;
    if (fate !== "c") item.hidden = !reading.fates.includes(fate);
    item.firstChild.style.background = reading.colours?.[fate] ?? "";
  }
  map?.renew();
}

// other(guess): its chance under another rule; squares: what would end differently there.
function supposeOnMap(other, squares = []) {
  if (!other && !supposed) return;
  supposed = other;
  flipped = new Set(squares);
  renewMap();
}

const WORDS = { d: "no guess tried", k: "guess kept", r: "redrawn after a refusal", x: "extra: all guesses kept" };
WORDS.l = "kept by the loosened rule only";
Object.assign(WORDS, { I: "I: alike guesses of the level lent", C: "C: its parent lent", B: "both lent" });
WORDS.c = "would end differently";
for (const [fate, words] of Object.entries(WORDS)) {
  const item = document.createElement("li");
  const path = `<path d="${MARKS[fate]}"/>`;
  const svg = `<svg viewBox="0 0 16 16" aria-hidden="true">${MARKS[fate] ? path + path : ""}</svg>`;
  item.innerHTML = `${fate === "d" ? '<i class="untried"></i>' : svg} ${words}`;
  item.dataset.fate = fate;
  find(".legend ul").append(item);
}
find(".reading select").append(...Object.entries(READINGS).map(([key, { name }]) => new Option(name, key)));
find(".reading select").onchange = ({ target }) => {
  reading = READINGS[target.value];
  renewMap();
};
find(".scale i").style.background = `linear-gradient(to right, ${CIVIDIS.map((stop) => `rgb(${stop})`)})`;
renewMap();
