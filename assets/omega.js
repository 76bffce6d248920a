// COOL-SD's schedule and its curve, shared by the stage and the knobs beside it. Knows nothing of either.

const falling = ({ nu, shape }, depth) =>
  Array.from({ length: depth }, (_, index) => (shape === "linear" ? depth - index : Math.exp(-nu * (index + 1))));

// The μ that makes the mean of ω equal δ.
const automatic = (knobs, depth) => Math.log(falling(knobs, depth).reduce((sum, height) => sum + height) / depth);

// ω of depths 1 to `depth`, as `omegas` of pipelines/pipeline_cool_sd.py. mu, clamp_min: null for automatic and for none.
function omegas(knobs, depth) {
  const scale = knobs.delta * Math.exp(-(knobs.mu ?? automatic(knobs, depth)));
  return falling(knobs, depth).map((height) => Math.max(knobs.clamp_min ?? 0, scale * height));
}

// The corners of ω as steps, one column a depth, for an SVG path. x, y: scales; y takes ω.
const steps = (schedule, x, y) =>
  schedule.map((omega, index) => `${index ? "L" : "M"}${x(index)} ${y(omega)}L${x(index + 1)} ${y(omega)}`).join("");

const signed = (number) => number.toFixed(2).replace("-", "−");

// A small picture of a schedule and what it says, as HTML. mu: what it takes where it is automatic, else null.
function sketch(schedule, mu) {
  const [width, height, high] = [220, 90, Math.max(2, ...schedule)];
  const x = (at) => 4 + (at * (width - 8)) / schedule.length;
  const y = (omega) => height - 6 - (omega * (height - 12)) / high;
  const line = steps(schedule, x, y);
  const numbers = schedule.map((omega) => omega.toFixed(2)).join(", ");
  return `<svg viewBox="0 0 ${width} ${height}" role="img" aria-label="ω by depth: ${numbers}">
    <path class="area" d="${line}V${y(0)}H${x(0)}Z"/><path class="one" d="M0 ${y(1)}H${width}"/>
    <path class="curve" d="${line}"/></svg>
    <p>ω of guess 1 to ${schedule.length}: ${numbers}. Dashed: 1, the exact rule.${mu === null ? "" : ` Automatic μ is ${signed(mu)}.`}</p>`;
}
