// The stage: shows a run's lanes side by side at one time of their own clocks, live or replayed.
// Gradio runs the files that app.py names in `STAGE` as one function of `element`, `props` and `watch`, once per page. Hidden children of the element send what is not text: "palette" (all colours, once), "pixels" (decoded
// pictures, one a line, twice a second) and "codes" (a sheet of all codes, each decoded alone).

const CATCH_UP_MS = 120; // squares that came in one message appear over this time
const FRAME_MS = 40; // between two drawings, for the browser often shares the model's processor
const SPEAK_MS = 1000; // a screen reader hears of progress at most once in this time
const SILENCE_MS = 4000; // after so long without a word, ask whether the server is there
const REPLAY_MS = 8000; // a replay begins with the speed that comes nearest to this length
const SPEEDS = [0.25, 1, 4];
const HINT = "draftboard-hint"; // set in the browser's store once a square was picked

const stage = element.querySelector(".stage");
const find = (selector) => stage.querySelector(selector);
const calm = window.matchMedia("(prefers-reduced-motion: reduce)");

let seen = ""; // the event text so far
let run = openRun(props.rows, props.cols, [""]);
let boards = []; // one per lane
let map = null; // the board that shows how sure the check was, null for lanes without one
const clock = { ms: 0, playing: false, speed: 1, from: 0, since: 0, chasing: false };
const picked = { lane: run.lanes[0], square: -1, told: "" };
let palette = [];
let sheet = null; // of decoded codes
let frame = 0; // pending animation frame, 0 for none
let lastTick = 0;
let lastSpoken = 0; // when a screen reader last had a sentence
let lastHeard = 0; // when the server last sent something
let lost = false; // the server does not answer

const end = () => Math.max(...run.lanes.map(length));
const isTold = () => run.lanes.every((lane) => lane.reason !== "");
const lead = () => map?.lane ?? run.lanes.at(-1);
const colour = (token) => palette[token] || "#808080";

// ---- event text -> state

function read() {
  const text = props.value || "";
  if (!text.startsWith(seen)) seen = "";
  const [before, wasTold] = [run, isTold()];
  for (const line of text.slice(seen.length).split("\n")) if (line) run = takeLine(run, line);
  seen = text;
  lastHeard = performance.now();
  lost = false;
  if (run !== before) build();
  if (run !== before && isTold()) replay();
  else if (!wasTold || run !== before) Object.assign(clock, { from: clock.ms, since: lastHeard, chasing: true });
  wake();
}

function build() {
  const list = find(".lanes");
  list.replaceChildren();
  find(".clocks").replaceChildren(...run.lanes.map((lane) => newClock(lane.name)));
  boards = run.lanes.map((lane) => {
    const figure = find("template").content.firstElementChild.cloneNode(true);
    list.append(figure);
    figure.querySelector("figcaption").textContent = lane.name;
    return laneBoard(figure, run, lane, colour);
  });
  const guessing = run.lanes.findLast((lane) => lane.name && isGuessing(lane));
  map = guessing ? mapBoard(find(".map"), run, guessing, look) : null;
  stage.dataset.lanes = run.lanes.length;
  find(".boards").style.setProperty("--lanes", run.lanes.length);
  find(".map").hidden = !map;
  resizes.disconnect();
  for (const board of [...boards, map].filter(Boolean)) {
    resizes.observe(board.canvas);
    board.box.onclick = (event) => pick(board.lane, board.under(event));
  }
  setSpeed(1);
  Object.assign(clock, { ms: 0, playing: false });
  Object.assign(picked, { lane: lead(), square: -1 });
}

function newClock(name) {
  const row = document.createElement("div");
  row.innerHTML = `<span></span><div class="track"><i></i></div><output></output>`;
  row.firstChild.textContent = name || "clock";
  return row;
}

// ---- the clock

function replay() {
  const far = (speed) => Math.abs(Math.log(end() / speed / REPLAY_MS));
  setSpeed(SPEEDS.reduce((best, speed) => (far(speed) < far(best) ? speed : best)));
  clock.chasing = false;
  if (calm.matches) go(end());
  else play();
}

function play() {
  if (!seen || !isTold()) return;
  if (clock.ms >= end()) clock.ms = 0;
  Object.assign(clock, { playing: true, chasing: false });
  lastTick = performance.now();
  wake();
}

function go(ms) {
  if (!seen || !isTold()) return;
  Object.assign(clock, { ms, playing: false, chasing: false });
  wake();
}

function step(direction) {
  const times = [0, ...lead().rounds.map((round) => round.ms), end()];
  const next = direction > 0 ? times.find((ms) => ms > clock.ms) : times.findLast((ms) => ms < clock.ms);
  if (next !== undefined) go(next);
}

function setSpeed(speed) {
  clock.speed = speed;
  for (const button of stage.querySelectorAll(".speeds button")) button.ariaPressed = +button.value === speed;
  const pace = find(".pace");
  pace.hidden = speed === 1;
  pace.textContent = speed < 1 ? `SLOWED ${1 / speed}×` : `SPED UP ${speed}×`;
}

function advance(stamp) {
  if (clock.playing) {
    clock.ms = Math.min(end(), clock.ms + (stamp - lastTick) * clock.speed);
    clock.playing = clock.ms < end();
  } else if (clock.chasing) {
    const share = calm.matches || isTold() ? 1 : Math.min(1, Math.max(0, stamp - clock.since) / CATCH_UP_MS);
    clock.ms = share < 1 ? clock.from + (end() - clock.from) * share : end();
    clock.chasing = share < 1;
  }
}

function wake() {
  frame ||= requestAnimationFrame(tick);
}

function tick(stamp) {
  frame = 0;
  const isDue = stamp >= lastTick + FRAME_MS;
  if (isDue) {
    advance(stamp);
    lastTick = stamp;
    show(stamp);
  }
  if (!isDue || clock.playing || clock.chasing) wake();
}

// ---- state -> page

// Sets a property of an element only where it changes, for the browser repaints what is set.
function write(target, name, value) {
  if (target[name] !== value) target[name] = value;
}

function show(stamp) {
  for (const board of boards) {
    const { lane } = board;
    seek(lane, clock.ms);
    board.show(drawn(lane));
    board.foresee(seen ? pending(lane) : [], colour);
    board.put(".here", seen && !isOver(lane) ? drawn(lane) : -1);
    count(board);
  }
  map?.show(drawn(map.lane));
  for (const board of [...boards, map].filter(Boolean)) {
    board.put(".picked", board.lane === picked.lane ? picked.square : -1);
  }
  showClocks();
  showPlayer();
  showPanels();
  speak(stamp);
}

function count({ figure, lane }) {
  const { passes, ms } = lastRound(lane);
  const say = (name, text) => write(figure.querySelector(name), "textContent", text);
  say(".tokens", `${drawn(lane)} / ${run.total}`);
  say(".passes", `${passes}`);
  say(".seconds", seconds(ms));
}

// While lanes are drawn, the scale ends at 1, 2 or 5 times a power of ten; then at the last lane's end.
function showClocks() {
  const power = 10 ** Math.floor(Math.log10(Math.max(end(), 1)));
  const full = isTold() ? end() : power * [1, 2, 5, 10].find((times) => times * power >= end());
  run.lanes.forEach((lane, index) => {
    const row = find(".clocks").children[index];
    write(row.querySelector("i").style, "width", `${((100 * lastRound(lane).ms) / (full || 1)).toFixed(2)}%`);
    write(row.lastChild, "textContent", `${seconds(lastRound(lane).ms)} s`);
  });
  write(find(".verdict"), "textContent", verdict(run));
}

function showPlayer() {
  const [bar, button] = [find(".player input"), find(".play")];
  const isOpen = seen !== "" && isTold();
  for (const control of [bar, button]) write(control, "disabled", !isOpen);
  write(bar, "max", String(end() || 1));
  bar.value = clock.ms;
  write(bar, "ariaValueText", `${seconds(clock.ms)} of ${seconds(end())} seconds`);
  write(find(".player output"), "textContent", `${seconds(clock.ms)} s`);
  write(button, "textContent", clock.playing ? "Pause" : "Play");
}

function state() {
  if (!seen) return "empty";
  if (!isTold()) return lost ? "lost" : "live";
  if (run.about.recorded) return "recorded";
  const reasons = run.lanes.map((lane) => lane.reason);
  if (reasons.every((reason) => reason === "done")) return "done";
  return reasons.every((reason) => ["done", "stopped"].includes(reason)) ? "stopped" : "broken";
}

function speak(stamp) {
  const is = state();
  const changed = is !== stage.dataset.state;
  stage.dataset.state = is;
  stage.dataset.tokens = drawn(lead());
  stage.dataset.time = clock.ms.toFixed(1);
  write(find(".badge"), "textContent", badge(run, is));
  write(find(".says"), "textContent", report(run, is));
  const isDark = map && reading === READINGS.chance && !supposed; // as the tip says of the map
  write(find(".tip"), "hidden", !isDark || drawn(map.lane) < run.total || isHintUsed());
  if (!changed && stamp - lastSpoken < SPEAK_MS && (clock.playing || clock.chasing)) return;
  lastSpoken = stamp;
  const heard = verdict(run) && !clock.playing ? `${report(run, is)} ${verdict(run)}` : report(run, is);
  write(find(".heard"), "textContent", heard);
  for (const { canvas, lane } of boards) write(canvas, "ariaLabel", describe(run, lane));
  if (map) write(map.canvas, "ariaLabel", describeMap(run, map.lane));
}

const resizes = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const board = [...boards, map].find((board) => board?.canvas === target);
    board?.resize();
    if (board?.image) fit(board);
  }
  wake();
});
