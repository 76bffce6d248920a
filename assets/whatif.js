// What if: the lane of the map under moved knobs, with the guesses and dice it had. Cooling moves the same knobs.

const EXACT = { delta: 1, nu: 0, mu: null, clamp_min: null, shape: "exp" }; // COOL-SD's knobs where it is the exact rule
const BORROWERS = { LanternPipeline: "delta", LanternPlusPlusPipeline: "lam", SJDLanternPipeline: "delta" };
const MOST_CHIPS = 30;

const DIALS = {
  delta: { label: "Relaxation δ", low: 0.5, high: 5, step: 0.05, help: "Mean of the factors ω; 1 with ν 0 is exact." },
  nu: { label: "Cooling ν", low: 0, high: 2, step: 0.05, help: "How fast ω falls from guess to guess; 0 is uniform." },
  mu: { label: "Scale μ", low: -5, high: 3, step: 0.05, none: "automatic" },
  clamp_min: { label: "Least ω", low: 0, high: 5, step: 0.05, none: "none" },
  lam: { label: "Multiple λ", low: 1, high: 20, step: 0.5, help: "Times a guess’s own probability; 1 is exact." },
  budget: { label: "Budget δ", low: 0, high: 1, step: 0.01, help: "Most probability a guess may borrow; 0 is exact." },
};

let known = {}; // of the lane that was examined last, see `examine`
let asked = {}; // the knobs as they are moved
let heard = {}; // what the page's controls said last

// What can be asked of a lane: its method; `real`, the method that would do it; `own`, the knobs it had; rule(knobs).
// Only `method` for one that needs a new run.
function examine(lane) {
  const { method = "", settings = {} } = run.about.lanes?.[run.lanes.indexOf(lane)] ?? {};
  const guesses = lane.rounds.flatMap((round) => round.guesses);
  const depth = Math.max(1, ...guesses.map((guess) => guess.depth));
  const chained = lane.rounds.every((round) => walk(round).isChain);
  const told = { method, settings, real: method, chained, depth };
  const take = (names) => Object.fromEntries(names.map((name) => [name, settings[name]]));
  if (method === "CoolSDPipeline") {
    const long = lane.rounds.find((round) => round.notes.omega)?.notes.omega.shape[0] ?? depth;
    return { ...told, depth: long, own: take(Object.keys(EXACT)), rule: (values) => ({ schedule: omegas(values, long) }) };
  }
  if (method === "UniformRSDPipeline") {
    return { ...told, own: take(["delta"]), rule: ({ delta }) => ({ schedule: Array(depth).fill(delta) }) };
  }
  if (BORROWERS[method] && guesses.every((guess) => guess.masses)) {
    const shared = { neighbours: settings.neighbours, residual: settings.residual ?? "gstar" };
    return { ...told, own: take([BORROWERS[method]]), rule: (values) => ({ ...values, ...shared }) };
  }
  const isExact = guesses.every(({ judged, chance, p, q }) => !judged || Math.abs(chance - Math.min(1, p / q)) < 0.002);
  if (!isExact || BORROWERS[method]) return told;
  return { ...told, real: "CoolSDPipeline", own: EXACT, rule: (values) => ({ schedule: omegas(values, depth) }) };
}

function subject() {
  const lane = lead();
  const isNew = known.lane !== lane;
  if (isNew || known.count !== lane.rounds.length) {
    known = { ...examine(lane), lane, count: lane.rounds.length };
    if (known.own) known.was = suppose(lane, known.rule(known.own), known.rule(known.own));
    if (isNew) asked = { ...known.own };
  }
  return known;
}

const isMoved = () => Object.entries(subject().own).some(([name, value]) => asked[name] !== value);

function turnDials(values) {
  Object.assign(asked, values);
  opened.show(opened.box);
}

// ---- the panel

const dialOf = (name) => DIALS[name === "delta" && BORROWERS[known.method] ? "budget" : name];

function dialRow(name) {
  if (name === "shape") {
    return `<label class="dial"><span>Shape</span><select data-knob="shape"><option>exp</option><option>linear</option></select></label>`;
  }
  const { label, low, high, step, none, help } = dialOf(name);
  const off = none ? `<button type="button" data-off="${name}">${none}</button>` : "";
  return `<div class="dial"><label for="dial-${name}">${label}</label>
    <input id="dial-${name}" type="range" data-knob="${name}" min="${low}" max="${high}" step="${step}">
    <output></output>${off}${help ? `<small>${help}</small>` : ""}</div>`;
}

function buildDials(box) {
  const { method, own, real, chained } = known;
  const title = real === method ? `What if ${run.lanes.length > 1 ? known.lane.name : "this run"} had other knobs?` : "What if the check were loosened like COOL-SD’s?";
  if (!own) {
    box.innerHTML = method === "CascadePipeline"
      ? `<p class="ask">Likeness and budget of ${known.lane.name} are moved in Tree, over the same guesses and dice; its other knobs need a new run.</p>`
      : `<p class="ask">What ${known.lane.name} would do with other knobs needs a new run: they change what is guessed, or what the check compares.</p>`;
    return;
  }
  const [first, more] = [Object.keys(own).slice(0, 2), Object.keys(own).slice(2)];
  box.innerHTML = `
    <p class="lead"><b>${title}</b> Same guesses, same dice, another rule.</p>
    <div class="dials">${first.map(dialRow).join("")}</div>
    ${more.length ? `<details><summary>Scale, least ω, shape</summary><div class="dials">${more.map(dialRow).join("")}</div></details>` : ""}
    <div class="needles">
      <div><span>Tokens a pass${chained ? "" : ", at least"}</span><div class="track"><i class="was"></i><i class="is"></i></div><output class="length"></output></div>
      <div><span>Infidelity a token</span><div class="track"><i class="was"></i><i class="is"></i></div><output class="infidelity"></output></div>
    </div>
    <p class="outcome" aria-live="polite"></p>
    <div class="chips" role="group" aria-label="Passes that would end differently"></div>
    <p class="one"></p>
    <div class="acts"><button type="button" class="real">Run it for real</button>
      <button type="button" class="back">Back to the run’s own</button></div>
    <p class="fine"></p>`;
  box.oninput = ({ target }) => {
    const { knob } = target.dataset;
    if (knob) turnDials({ [knob]: knob === "shape" ? target.value : +target.value });
  };
  box.onclick = ({ target }) => {
    const { off } = target.dataset;
    const set = off === "mu" ? +automatic(asked, known.depth).toFixed(2) : 1;
    if (off) turnDials({ [off]: asked[off] === null ? set : null });
  };
  box.querySelector(".chips").onclick = ({ target }) => {
    const { round, guess } = known.now.changed[target.dataset.change] ?? {};
    if (!guess) return;
    go(round.ms);
    pick(known.lane, guess.square);
  };
  box.querySelector(".real").onclick = runForReal;
  box.querySelector(".back").onclick = () => turnDials(known.own);
}

// Sets the page's controls to what this lane was asked for and to the moved knobs, and presses Start.
function runForReal() {
  const { prompt, seed } = run.about;
  const { real, settings } = known;
  const own = Object.entries({ ...settings, ...asked }).map(([name, value]) => [`${real}-${name}`, value]);
  page.wanted = { prompt, seed, method: real, ...settings, ...Object.fromEntries(own) };
  document.querySelector("#real").click();
}

function showWhatIf(box) {
  const { lane, count, own, rule } = subject();
  const key = `${lane.name} ${known.method} ${own && Object.keys(own)} ${known.chained} ${known.depth}`;
  if (box.dataset.built !== key) buildDials(box);
  box.dataset.built = key;
  if (!own) return supposeOnMap();
  const seenNow = [lane, count, JSON.stringify(asked), picked.square, supposed, state()];
  if (seenNow.every((part, index) => part === box.seen?.[index])) return;
  known.now = suppose(lane, rule(asked), rule(own));
  showDials(box);
  showOutcome(box);
  applyToMap();
  box.seen = [...seenNow.slice(0, 4), supposed, state()];
}

function applyToMap() {
  const { now, rule } = known;
  if (!isMoved()) return supposeOnMap();
  const other = rule(asked);
  supposeOnMap((guess) => chanceUnder(other, guess), now.changed.map(({ guess }) => guess.square));
}

function showDials(box) {
  for (const dial of box.querySelectorAll("[data-knob]")) {
    const { knob } = dial.dataset;
    const isOff = asked[knob] === null;
    const value = isOff && knob === "mu" ? automatic(asked, known.depth) : asked[knob] ?? 0;
    write(dial, "value", String(value));
    if (knob === "shape") continue;
    write(dial, "disabled", isOff);
    write(dial.nextElementSibling, "textContent", isOff && knob !== "mu" ? "" : signed(value));
    const button = dial.parentElement.querySelector("[data-off]");
    if (button) write(button, "ariaPressed", String(isOff));
  }
}

function showOutcome(box) {
  const { was, now, lane, chained } = known;
  const say = (name, text) => write(box.querySelector(name), "textContent", text);
  const arrow = (from, to, digits) => (isMoved() ? `${from.toFixed(digits)} → ${to.toFixed(digits)}` : from.toFixed(digits));
  const [speed, price] = box.querySelectorAll(".needles .track");
  const most = Math.min(known.depth + 1, Math.max(4, Math.ceil(2 * was.length)));
  point(speed, (was.length - 1) / (most - 1), (now.length - 1) / (most - 1));
  point(price, was.infidelity / 0.5, now.infidelity / 0.5);
  say(".length", arrow(was.length, now.length, 2));
  say(".infidelity", arrow(was.infidelity, now.infidelity, 3));
  const count = now.changed.length;
  say(".outcome", isMoved() ? `With the same dice ${count} of ${now.rounds} rounds would end differently${count ? ":" : "."}` : "Move a knob: the map brightens where the check would have been kinder.");
  const chips = now.changed.slice(0, MOST_CHIPS).map(({ round }, index) => `<button type="button" data-change="${index}">pass ${round.passes}</button>`);
  if (count > MOST_CHIPS) chips.push(`<span>and ${count - MOST_CHIPS} more</span>`);
  write(box.querySelector(".chips"), "innerHTML", chips.join(""));
  say(".one", picked.lane === lane ? compareSquare(lane, picked.square) : "");
  const excess = lane.rounds.flatMap((round) => round.notes.excess?.values ?? []);
  const exact = excess.length ? ` At the run’s own knobs the exact expected infidelity is ${(excess.reduce((sum, part) => sum + part) / lane.squares.length).toFixed(3)} a token.` : "";
  const open = now.open ? ` For ${now.open} guesses the budget reaches past the nearest codes that this run kept: what is shown is the least, the rest needs a new run.` : "";
  const tree = chained ? "" : " Of a tree only guesses that were judged are counted.";
  say(".fine", `Round-exact, path frozen: each pass is right by itself; later passes keep the guesses they had.${tree} Infidelity: how far the kept guesses move the law of a token.${exact}${open}`);
  write(box.querySelector(".real"), "disabled", state() === "live" || !(`${known.real}-${Object.keys(known.own)[0]}` in knobs));
  write(box.querySelector(".back"), "disabled", !isMoved());
}

function point(track, was, is) {
  const at = (share) => `${(100 * Math.min(1, Math.max(0, share || 0))).toFixed(2)}%`;
  write(track.querySelector(".was").style, "left", at(was));
  write(track.querySelector(".is").style, "width", at(is));
}

// What the picked square's guesses met, and what they would have met.
function compareSquare(lane, square) {
  if (square < 0 || square >= lane.squares.length || !isMoved()) return "";
  const other = known.rule(asked);
  const told = judged(lane, square).map((guess) => {
    const is = chanceUnder(other, guess);
    const word = (chance) => (guess.dice < chance ? "kept" : "refused");
    return `the chance was ${probability(guess.chance)} and the dice showed ${probability(guess.dice)}: ${word(guess.chance)}. With these knobs the chance is ${probability(is)}: ${word(is)}.`;
  });
  return told.length ? `Pass ${lane.squares[square].round.passes}, ${place(run, square)}: ${told.join(" Next guess: ")}` : "";
}

document.addEventListener("knobs", ({ detail }) => {
  const { real, own } = subject();
  for (const name of Object.keys(own ?? {})) {
    const key = `${real}-${name}`;
    if (detail.method === real && key in heard && heard[key] !== detail[key]) asked[name] = detail[key];
  }
  heard = detail;
});

// Asked in every frame, so the map forgets the other rule where no panel that moves it is open. Its mark stays in the
// legend while one is, so that nothing shifts under a hand.
addPanel("whatif", "What if", () => {
  const isAsking = ["whatif", "cooling"].includes(opened?.id);
  write(find('.legend [data-fate="c"]'), "hidden", !isAsking);
  if (!isAsking) supposeOnMap();
  return Boolean(map);
}, showWhatIf);
window.__whatif = { suppose, omegas, subject, turnDials };
