// COOL-SD's schedule among its knobs. One function with omega.js, run each time that these knobs appear.
const draw = ({ detail }) => {
  if (!element.isConnected) return document.removeEventListener("knobs", draw);
  const own = (name) => detail[`CoolSDPipeline-${name}`] ?? null;
  const depth = own("draft") === "static" ? props.heights[own("tree")] : own("length");
  const knobs = Object.fromEntries(["delta", "nu", "mu", "clamp_min", "shape"].map((name) => [name, own(name)]));
  element.querySelector(".omega").innerHTML = sketch(omegas(knobs, depth), knobs.mu === null ? automatic(knobs, depth) : null);
};
document.addEventListener("knobs", draw);
if (page.known) draw({ detail: page.known });
