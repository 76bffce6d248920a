// What the page's buttons do in the browser, at once, before any server answers.
const page = (() => {
  const WAITING = '<p class="waiting">Waiting for the model.</p>';
  const set = (name, value) => ({ __type__: "update", [name]: value });

  // Keyboard users land on Stop, not nowhere; after the run on Start.
  function start() {
    if (document.activeElement?.id === "go") setTimeout(() => document.querySelector("#stop")?.focus(), 100);
    return [set("interactive", false), set("interactive", true), WAITING];
  }

  function end() {
    setTimeout(() => {
      if (document.activeElement === document.body) document.querySelector("#go")?.focus({ preventScroll: true });
    }, 100);
    return [set("interactive", true), set("interactive", false)];
  }

  const newSeed = () => Math.floor(Math.random() * 2 ** 31);

  const showKnobs = (methods, chosen) => methods.map((name) => set("visible", name === chosen));

  return { start, end, newSeed, showKnobs };
})();
