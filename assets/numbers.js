// Numbers: every count of a run with what it is counted over, and what several seeds say together.

let repeats = null; // of the lanes over several seeds, see visualize/numbers.py
let numbersKey = "";

// What a lane has done by now. A guess is checked when its dice were thrown.
function countLane(lane) {
  const rounds = lane.rounds.slice(0, lane.at);
  const guesses = rounds.flatMap((round) => round.guesses);
  const fates = lane.squares.slice(0, drawn(lane)).map((square) => square.fate);
  const total = (pick) => rounds.reduce((sum, round) => sum + pick(round), 0);
  const checked = guesses.filter((guess) => guess.judged);
  return {
    tokens: drawn(lane),
    passes: lastRound(lane).passes,
    guessed: guesses.length,
    checked: checked.length,
    kept: checked.filter((guess) => guess.dice < guess.chance).length,
    lent: fates.filter((fate) => fate === "l").length,
    ms: lastRound(lane).ms,
    draft: total((round) => round.draft),
    target: total((round) => round.target),
  };
}

const share = (part, whole) => (whole ? ` (${Math.round((100 * part) / whole)} %)` : "");
const ofPasses = (ms, { passes }) => (passes ? ms / passes : NaN);

// Title, and what a lane's count says of it.
const NUMBERS = [
  ["Tokens drawn, of all squares", (lane, it) => `${it.tokens} of ${run.total}${share(it.tokens, run.total)}`],
  ["Passes of the network, the first included", (lane, it) => `${it.passes}`],
  [
    "Accepted length: tokens after the first, over passes after the first",
    (lane, it) => (it.passes > 1 ? `(${it.tokens} − 1) / (${it.passes} − 1) = ${((it.tokens - 1) / (it.passes - 1)).toFixed(2)}` : "–"),
  ],
  ["Guesses kept, of those checked", (lane, it) => (it.checked ? `${it.kept} of ${it.checked}${share(it.kept, it.checked)}` : "no guesses")],
  ["of these kept by the loosened rule only", (lane, it) => (it.checked ? `${it.lent}` : "–")],
  ["Guesses never checked: an earlier one was refused", (lane, it) => (it.guessed ? `${it.guessed - it.checked} of ${it.guessed}` : "–")],
  [
    "Seconds: drafting + target + rest",
    (lane, it) => {
      const parts = [it.draft, it.target, it.ms - it.draft - it.target].map((ms) => seconds(Math.max(0, ms)));
      return `${seconds(it.ms)} = ${parts.join(" + ")}`;
    },
  ],
  ["Milliseconds a pass: target alone, and all", (lane, it) => (it.passes ? `${ofPasses(it.target, it).toFixed(1)}, ${ofPasses(it.ms, it).toFixed(1)}` : "–")],
];

// The speed-up that a lane would have over the first if only drafting and the target took time.
function ceiling(base, it) {
  const pace = (one) => ((one.tokens - 1) / (one.passes - 1)) / ofPasses(one.target + one.draft, one);
  return pace(it) / pace(base);
}

const cell = (tag, text) => Object.assign(document.createElement(tag), { textContent: text });

function numbersTable(counts) {
  const table = document.createElement("table");
  const head = document.createElement("tr");
  head.append(cell("th", "Count"), ...run.lanes.map((lane) => cell("th", lane.name)));
  table.append(head);
  for (const [title, tell] of NUMBERS) {
    const row = document.createElement("tr");
    row.append(cell("th", title), ...run.lanes.map((lane, index) => cell("td", tell(lane, counts[index]))));
    table.append(row);
  }
  return table;
}

const around = ({ median, low, high }) => `${median.toFixed(2)}× (${low.toFixed(2)} to ${high.toFixed(2)})`;

function repeatsTable() {
  const { names, seeds, wanted, seconds: times, passes, speedup, fewer } = repeats;
  const table = document.createElement("table");
  const head = document.createElement("tr");
  head.append(cell("th", `Seed (${seeds.length} of ${wanted})`), ...names.map((name) => cell("th", name)));
  table.append(head);
  seeds.forEach((seed, at) => {
    const row = document.createElement("tr");
    row.append(cell("th", seed), ...names.map((_, lane) => cell("td", `${times[at][lane].toFixed(2)} s, ${passes[at][lane]} passes`)));
    table.append(row);
  });
  const said = names.slice(1).map(
    (name, lane) => `${name} against ${names[0]}: ${around(speedup[lane])} the speed, ${around(fewer[lane])} fewer passes.`,
  );
  if (!seeds.length) return [table, cell("p", "Passes and seconds come here, seed by seed.")];
  return [table, cell("p", `${said.join(" ")} Medians of paired ratios, with what chance alone would spread 95 % of them over.`)];
}

const fiveSeeds = Object.assign(cell("button", "Run 5 seeds"), { type: "button", className: "five" });
fiveSeeds.onclick = () => document.querySelector("#five")?.click();
const FIVE = "Draws what the controls say with five seeds, the methods in turns, and keeps seconds and passes.";

function showNumbers(box) {
  const key = [run.lanes.map((lane) => lane.at), String(repeats && repeats.seeds), seen.length, run.lanes.length].join("|");
  if (key === numbersKey) return;
  numbersKey = key;
  if (!box.children.length) box.append(document.createElement("div"), fiveSeeds, document.createElement("div"));
  const counts = run.lanes.map(countLane);
  const [base, ...others] = run.lanes;
  const isWhole = others.length && run.lanes.every((lane) => isOver(lane) && lane.reason === "done");
  const said = others.map((lane, index) => {
    const [speed, most] = [counts[0].ms / counts[index + 1].ms, ceiling(counts[0], counts[index + 1])];
    const words = `if only drafting and the target took time, ${most.toFixed(2)}×`;
    return `${lane.name} against ${base.name} in this race: ${speed.toFixed(2)}× the speed; ${words}.`;
  });
  box.children[0].replaceChildren(numbersTable(counts), cell("p", isWhole ? `${said.join(" ")} One race is one race:` : ""));
  box.children[2].replaceChildren(...(repeats ? repeatsTable() : [cell("p", FIVE)]));
}

element.addEventListener("numbers", ({ detail }) => {
  repeats = detail ? JSON.parse(detail) : null;
  wake();
});
addPanel("numbers", "Numbers", () => true, showNumbers);
