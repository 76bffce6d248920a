// Cooling: the factors ω over the depth of a guess, among the guesses of the run. Moves the knobs of What if.

const [LEAST, MOST] = [0.05, 20]; // ω at the ends of the axis
const PLOT = { left: 46, top: 34, bottom: 262, height: 306 }; // of the drawing, in pixels; its width is the panel's

const high = (omega) => {
  const share = Math.log(Math.min(MOST, Math.max(LEAST, omega)) / LEAST) / Math.log(MOST / LEAST);
  return PLOT.bottom - share * (PLOT.bottom - PLOT.top);
};
const omegaAt = (y) => LEAST * Math.exp(((PLOT.bottom - y) / (PLOT.bottom - PLOT.top)) * Math.log(MOST / LEAST));
const along = (at) => PLOT.left + (at * (known.width - PLOT.left - 8)) / known.depth;
const nuDepth = () => Math.min(known.depth, 4); // where the handle of ν sits

function buildCooling(box) {
  const { lane, depth, width } = known;
  const grid = [0.1, 0.3, 1, 3, 10].map((omega) =>
    `<path class="${omega === 1 ? "one" : "grid"}" d="M${PLOT.left} ${high(omega)}H${width - 8}"/><text x="${PLOT.left - 8}" y="${high(omega) + 5}" text-anchor="end">${omega}</text>`);
  const every = Math.ceil(depth / 16);
  const depths = Array.from({ length: depth }, (_, index) =>
    index % every ? "" : `<text x="${along(index + 0.5)}" y="${PLOT.bottom + 18}" text-anchor="middle">${index + 1}</text>`);
  const dots = lane.rounds.flatMap((round) => walk(round).tried).map((guess, index) => {
    const x = along(guess.depth - 1 + 0.12 + 0.76 * ((index * 0.618) % 1)).toFixed(1);
    const y = guess.p ? high(guess.q / guess.p) : PLOT.top - 14;
    return `<circle class="${guess.dice < guess.chance ? "kept" : "refused"}" cx="${x}" cy="${y.toFixed(1)}" r="2.6"/>`;
  });
  const handle = (name) => `<g class="handle" data-handle="${name}" role="slider" tabindex="0"><circle r="22" class="reach"/><circle r="9"/><text y="5" text-anchor="middle">${{ delta: "δ", nu: "ν" }[name]}</text></g>`;
  box.innerHTML = `
    <p class="lead"><b>How ω cools.</b> A dot is a guess, at the ω that keeps it for sure (q/p). Under the curve it is kept for sure, above it with chance ω·p/q. Filled: kept in the run.</p>
    <svg class="cooling" width="${width}" height="${PLOT.height}" role="group" aria-label="ω by depth of the guess, with two handles">
      ${grid.join("")}${depths.join("")}
      <text x="${PLOT.left - 8}" y="${PLOT.top - 9}" text-anchor="end">p = 0</text>
      <text x="${along(depth / 2)}" y="${PLOT.height - 4}" text-anchor="middle">depth of the guess in its pass</text>
      <path class="area"/>${dots.join("")}
      <path class="line uniform"/><path class="line clamp"/><path class="line curve"/>
      ${handle("delta")}${handle("nu")}
    </svg>
    <p class="reads" aria-live="polite"></p>
    <p class="fine"></p>`;
  for (const grip of box.querySelectorAll(".handle")) hold(grip);
}

// A handle follows the pointer up and down; arrow keys move its knob by a step.
function hold(grip) {
  const { handle } = grip.dataset;
  let first = 0; // ω of depth 1 when the pointer came
  grip.onpointerdown = (event) => {
    grip.setPointerCapture(event.pointerId);
    first = omegas({ ...asked, clamp_min: null }, known.depth)[0];
    event.preventDefault();
    grip.focus({ preventScroll: true });
  };
  grip.onpointermove = (event) => {
    if (!grip.hasPointerCapture(event.pointerId)) return;
    const omega = omegaAt(event.clientY - grip.ownerSVGElement.getBoundingClientRect().top);
    const nu = handle === "nu" ? Math.log(first / omega) / (nuDepth() - 1) : asked.nu;
    turnTo(handle === "nu" ? { nu, delta: first } : { delta: omega });
  };
  grip.onkeydown = (event) => {
    const turn = { ArrowUp: 1, ArrowRight: 1, ArrowDown: -1, ArrowLeft: -1 }[event.key];
    if (!turn) return;
    event.preventDefault();
    turnDials({ [handle]: onScale(handle, asked[handle] + turn * DIALS[handle].step) });
  };
}

// delta: here what ω of depth 1 is to be.
function turnTo({ nu = asked.nu, delta }) {
  const cooled = nu === undefined ? {} : { nu: onScale("nu", nu) };
  const unit = known.rule({ ...asked, ...cooled, delta: 1, clamp_min: null }).schedule[0];
  turnDials({ ...cooled, delta: onScale("delta", delta / unit) });
}

function onScale(name, value) {
  const { low, high, step } = DIALS[name];
  return +Math.min(high, Math.max(low, Math.round(value / step) * step)).toFixed(2);
}

function showCooling(box) {
  const { lane, count, own, rule, depth } = subject();
  known.width = Math.max(280, box.clientWidth);
  const built = [lane, count, depth, known.width];
  const isSame = (list, others) => list.every((part, index) => part === others?.[index]);
  if (!isSame(built, box.built)) buildCooling(box);
  const told = [JSON.stringify(asked), supposed];
  if (isSame(built, box.built) && isSame(told, box.told)) return;
  const moved = rule(asked);
  known.now = suppose(lane, moved, rule(own));
  drawCurve(box, moved.schedule);
  applyToMap();
  Object.assign(box, { built, told: [told[0], supposed] });
}

function drawCurve(box, schedule) {
  const { lane, depth, now, was, own } = known;
  const line = (name, path) => box.querySelector(`.${name}`).setAttribute("d", path);
  const across = (omega) => `M${PLOT.left} ${high(omega)}H${known.width - 8}`;
  const even = uniformLike(lane, { schedule }, depth);
  const isEven = schedule.every((omega) => Math.abs(omega - schedule[0]) < 1e-9);
  const curve = steps(schedule, along, high);
  line("curve", curve);
  line("area", `${curve}V${PLOT.bottom}H${PLOT.left}Z`);
  line("uniform", isEven ? "" : across(even));
  line("clamp", asked.clamp_min ? across(asked.clamp_min) : "");
  for (const grip of box.querySelectorAll(".handle")) {
    const { handle } = grip.dataset;
    const at = handle === "nu" ? nuDepth() : 1;
    grip.style.display = handle === "nu" && (!("nu" in own) || depth < 2 || asked.shape === "linear") ? "none" : "";
    grip.setAttribute("transform", `translate(${along(at - 0.5)} ${high(schedule[at - 1])})`);
    const { label, low, high: most } = DIALS[handle];
    Object.assign(grip, { ariaLabel: label, ariaValueMin: low, ariaValueMax: most, ariaValueNow: asked[handle] ?? 0 });
  }
  const price = suppose(lane, { schedule: Array(depth).fill(even) }, known.rule(own)).infidelity;
  const mu = asked.mu === null ? `, automatic μ ${signed(automatic(asked, depth))}` : asked.mu === undefined ? "" : `, μ ${signed(asked.mu)}`;
  const knobsNow = `δ ${asked.delta.toFixed(2)}${asked.nu === undefined ? "" : `, ν ${asked.nu.toFixed(2)}`}${mu}${asked.clamp_min ? `, least ω ${asked.clamp_min.toFixed(2)} (dotted)` : ""}`;
  const uniform = isEven ? "" : ` A uniform ω of ${even.toFixed(2)} (dashed) brings as many at ${price.toFixed(3)}.`;
  write(box.querySelector(".reads"), "textContent", `${knobsNow}: ${now.length.toFixed(2)} tokens a pass (${was.length.toFixed(2)} in the run) at infidelity ${now.infidelity.toFixed(3)}.${uniform}`);
  write(box.querySelector(".fine"), "textContent", `ω of depth 1 to ${depth}: ${schedule.map((omega) => omega.toPrecision(2)).join(", ")}. At 1, the thin line, the check is exact. Round-exact, path frozen.`);
}

addPanel("cooling", "Cooling", () => Boolean(map && lead().rounds.length > 1 && subject().own && !BORROWERS[known.method]), showCooling);
