// Growth: how likely a square's tokens were, Jacobi pass by Jacobi pass, until one of them was placed.

const GROWN = { left: 58, right: 14, top: 12, bottom: 206, height: 246, least: 1e-4 }; // of the drawing, in pixels
const SMALL = { width: 72, height: 44, most: 16, least: 1e-3 }; // of the drawings of other squares
const ROLES = { placed: "placed", guess: "guessed", rival: "rival" };
let grownKey = "";
let pastChart = null; // what is drawn: { lane, square, told, x }
let longestPast = { lane: null, count: 0, square: -1 };

// What the run tells of a square's past: its tokens, and of each pass their probabilities and the guess made for it.
function pastOf(lane, square) {
  const round = lane.squares[square]?.round;
  const { past_tokens: tokens, past_guesses: guesses, past_probs: probs } = round?.notes || {};
  if (!probs) return null;
  const [, passes, count] = probs.shape;
  const offset = square - round.start;
  const row = (pass) => probs.values.slice((offset * passes + pass) * count, (offset * passes + pass + 1) * count);
  const all = Array.from({ length: passes }, (_, pass) => ({
    pass: round.passes - passes + 1 + pass,
    guess: guesses.values[offset * passes + pass],
    probs: row(pass),
  }));
  return { round, tokens: tokens.values.slice(offset * count, (offset + 1) * count), passes: all.filter((one) => one.probs[0] >= 0) };
}

// The square to show: the picked one, else the one that waited longest.
function grownSquare(lane) {
  if (picked.lane === lane && picked.square >= 0) return picked.square;
  if (longestPast.lane !== lane || longestPast.count !== lane.squares.length) {
    const waits = lane.squares.map((_, square) => pastOf(lane, square)?.passes.length ?? 0);
    longestPast = { lane, count: waits.length, square: waits.indexOf(Math.max(...waits)) };
  }
  return longestPast.square;
}

const stepsOf = (lane) => run.about.lanes?.[run.lanes.indexOf(lane)]?.settings?.growth_steps ?? 3;

// Runs of at least `steps` increases: [from, to], places in `values`.
function rises(values, steps) {
  const found = [];
  for (let from = 0, to = 0; to < values.length; to++) {
    if (values[to + 1] > values[to]) continue;
    if (to - from >= steps) found.push([from, to]);
    from = to + 1;
  }
  return found;
}

function curves({ passes }, column, x, y, steps) {
  const values = passes.map((one) => -y(one.probs[column])); // a rise that cannot be seen is none
  const path = (from, to) => "M" + passes.slice(from, to + 1).map((one) => `${x(one.pass)} ${y(one.probs[column])}`).join("L");
  const thick = rises(values, steps).map(([from, to]) => `<path class="rise" d="${path(from, to)}"/>`);
  return `<path d="${path(0, passes.length - 1)}"/>${thick.join("")}`;
}

function buildGrowth(box, lane, square, width) {
  const told = pastOf(lane, square);
  pastChart = null;
  if (!told?.passes.length) {
    box.innerHTML = `<p class="ask">Square ${square + 1} is not drawn yet, so its past is not told. Tap another.</p>`;
    return;
  }
  const { passes, tokens } = told;
  const steps = stepsOf(lane);
  const [first, last] = [passes[0].pass, passes.at(-1).pass];
  const lowest = Math.min(...passes.flatMap((one) => one.probs).filter((prob) => prob > 0));
  const floor = 10 ** Math.floor(Math.log10(Math.min(0.1, Math.max(GROWN.least, lowest))));
  const x = (pass) => +(GROWN.left + ((pass - first) / Math.max(1, last - first)) * (width - GROWN.left - GROWN.right)).toFixed(1);
  const y = (prob) => +(GROWN.top + (Math.log10(Math.max(prob, floor)) / Math.log10(floor)) * (GROWN.bottom - GROWN.top)).toFixed(1);
  const guesses = passes.map((one) => one.guess);
  const lines = tokens.map((token, column) => ({ token, column })).filter(({ token }) => token >= 0);
  for (const line of lines) {
    line.times = guesses.filter((guess) => guess === line.token).length;
    line.role = line.column === 0 ? "placed" : line.times ? "guess" : "rival";
  }
  const tried = judged(lane, square)[0];
  const grid = Array.from({ length: Math.round(-Math.log10(floor)) + 1 }, (_, power) =>
    `<path class="grid" d="M${GROWN.left} ${y(10 ** -power)}H${width - GROWN.right}"/><text x="${GROWN.left - 8}" y="${y(10 ** -power) + 5}" text-anchor="end">${power ? 10 ** -power : 1}</text>`);
  const every = Math.ceil(passes.length / (width < 500 ? 8 : 16));
  const ticks = passes.map(({ pass }, index) => ((passes.length - 1 - index) % every ? "" : `<text x="${x(pass)}" y="${GROWN.bottom + 18}" text-anchor="middle">${pass}</text>`));
  const shapes = lines.slice().reverse().map(({ token, column, role }) => {
    const marks = passes.filter((one) => one.guess === token).map((one) => `<circle cx="${x(one.pass)}" cy="${y(one.probs[column])}" r="4"/>`);
    return `<g class="${role}">${curves(told, column, x, y, steps)}${marks.join("")}</g>`;
  });
  const column = tried ? tokens.indexOf(tried.token) : -1;
  const [endX, endY] = [x(last), column < 0 ? 0 : y(passes.at(-1).probs[column])];
  const isRefused = column >= 0 && tried.dice >= tried.chance;
  const cross = isRefused ? `<path class="refused" d="M${endX - 6} ${endY - 6}l12 12m0 -12l-12 12"/>` : "";
  const end = `<circle class="end" cx="${endX}" cy="${y(passes.at(-1).probs[0])}" r="7"/>${cross}`;
  box.innerHTML = `
    <p class="lead"><b>Square ${square + 1}, ${place(run, square)}.</b> How likely the model found each token, pass by pass. Thick: it rose ${steps === 1 ? "" : `${steps} times `}in a row or longer. ○ guessed, ● placed, × refused.</p>
    <svg class="growth" width="${width}" height="${GROWN.height}" role="slider" tabindex="0" aria-label="Pass" aria-valuemin="${first}" aria-valuemax="${last}">
      ${grid.join("")}${ticks.join("")}<path class="now"/>${shapes.join("")}${end}
      <text x="${(GROWN.left + width) / 2}" y="${GROWN.height - 4}" text-anchor="middle">pass (tap one to go there)</text>
    </svg>
    <ol class="likely tokens" aria-label="Tokens of this square"></ol>
    <p class="fine">The squares of the same window, each with its placed token. Tap one.</p>
    <div class="siblings"></div>
    <p class="share"></p>`;
  const named = ({ role, times, token }) => {
    const verdict = tried?.token === token ? (isRefused ? ", refused" : ", kept") : "";
    return `${ROLES[role]}${role === "placed" && times ? ", guessed" : ""}${times > 1 ? ` ${times}×` : ""}${verdict}`;
  };
  box.querySelector(".tokens").replaceChildren(...lines.map((line) => {
    const row = bar(line.token, passes.at(-1).probs[line.column], passes.at(-1).probs[line.column], named(line));
    row.classList.add(line.role);
    return row;
  }));
  box.querySelector(".siblings").replaceChildren(...siblings(lane, told.round, square, steps));
  const svg = box.querySelector("svg.growth");
  const goTo = (pass) => go(lane.rounds.find((round) => round.passes >= pass)?.ms ?? end());
  svg.onclick = (event) => {
    const at = event.clientX - svg.getBoundingClientRect().left;
    const near = (one) => Math.abs(x(one.pass) - at);
    goTo(passes.reduce((best, one) => (near(one) < near(best) ? one : best)).pass);
  };
  svg.onkeydown = (event) => {
    const turn = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!turn) return;
    event.preventDefault();
    event.stopPropagation();
    goTo(Math.min(last, Math.max(first, lastRound(lane).passes + turn)));
  };
  pastChart = { lane, svg, x, first, last };
}

// The other squares that the pass looked at, small: the placed token of each.
function siblings(lane, round, square, steps) {
  const count = Math.min(SMALL.most, 1 + round.guesses.length, lane.squares.length - round.start);
  return Array.from({ length: Math.max(0, count) }, (_, offset) => round.start + offset).map((other) => {
    const told = pastOf(lane, other);
    const button = document.createElement("button");
    button.type = "button";
    button.ariaPressed = other === square;
    button.ariaLabel = `Square ${other + 1}, ${place(run, other)}`;
    if (told?.passes.length) {
      const { passes } = told;
      const wide = Math.max(1, passes.length - 1);
      const x = (pass) => +(4 + ((pass - passes[0].pass) / wide) * (SMALL.width - 8)).toFixed(1);
      const y = (prob) => +(4 + (Math.log10(Math.max(prob, SMALL.least)) / Math.log10(SMALL.least)) * (SMALL.height - 8)).toFixed(1);
      const end = `<circle cx="${x(passes.at(-1).pass)}" cy="${y(passes.at(-1).probs[0])}" r="3"/>`;
      button.innerHTML = `<svg width="${SMALL.width}" height="${SMALL.height}" aria-hidden="true"><g class="placed">${curves(told, 0, x, y, steps)}${end}</g></svg>`;
    }
    button.insertAdjacentText("beforeend", other + 1);
    button.onclick = () => pick(lane, other);
    return button;
  });
}

// How many of the checked guesses had risen N times in a row up to the check, among those with N passes before it.
function growthShare(lane, steps) {
  const counts = [[0, 0], [0, 0]]; // refused, kept: those that rose, all
  for (const { notes } of lane.rounds.slice(0, lane.at)) {
    for (let at = 0; at < (notes.streaks?.values.length ?? 0); at += 3) {
      const [kept, rose, before] = notes.streaks.values.slice(at, at + 3);
      if (before < steps) continue;
      counts[kept][1]++;
      counts[kept][0] += rose >= steps;
    }
  }
  const [refused, kept] = counts;
  const chance = 1 / [1, 1, 2, 6, 24, 120, 720][steps + 1];
  const times = steps === 1 ? "once" : `${steps} times in a row`;
  const part = ([rose, all]) => (rose ? percent(rose / all) : "none");
  if (!kept[1]) return `In this run no guess has been kept yet that ${steps} passes had come before.`;
  const others = refused[1] ? ` Of the refused: ${part(refused)}.` : "";
  return `Growth in this run so far: of ${kept[1]} kept guesses seen in ${steps} earlier ${steps === 1 ? "pass" : "passes"} or more, ${part(kept)} rose ${times} up to their check.${others} With the passes in random order it would be ${percent(chance)}.`;
}

function showGrowth(box) {
  const lane = lead();
  const square = grownSquare(lane);
  const width = Math.max(280, Math.floor(box.clientWidth));
  const key = [run.lanes.indexOf(lane), square, Boolean(lane.squares[square]), width, sheet?.side, seen.length * isTold()].join();
  if (key !== grownKey || !box.firstChild) {
    grownKey = key;
    buildGrowth(box, lane, square, width);
  }
  if (!pastChart) return;
  const pass = lastRound(lane).passes;
  const isInside = pass >= pastChart.first && pass <= pastChart.last;
  const now = pastChart.svg.querySelector(".now");
  const line = isInside ? `M${pastChart.x(pass)} ${GROWN.top}V${GROWN.bottom}` : "";
  if (now.getAttribute("d") !== line) {
    now.setAttribute("d", line);
    pastChart.svg.setAttribute("aria-valuenow", Math.min(pastChart.last, Math.max(pastChart.first, pass)));
    pastChart.svg.setAttribute("aria-valuetext", `pass ${pass}`);
  }
  write(box.querySelector(".share"), "textContent", growthShare(lane, stepsOf(lane)));
}

addPanel("growth", "Growth", () => lead().rounds.some((round) => round.notes.past_probs), showGrowth);
