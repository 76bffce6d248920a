// What the page's buttons do in the browser, at once, before any server answers.
const page = (() => {
  const WAITING = '<p class="waiting">Waiting for the model.</p>';
  const KEEP = { __type__: "update" };
  const set = (name, value) => ({ ...KEEP, [name]: value });

  // Keyboard users land on Stop, not nowhere; after the run on Start.
  function start(text) {
    ran = { lesson: open, text };
    if (document.activeElement?.id === "go") setTimeout(() => document.querySelector("#stop")?.focus(), 100);
    return [set("interactive", false), set("interactive", true), WAITING];
  }

  // A lesson's verdict needs the lesson's run, to its end.
  function end(verdicts, text) {
    const reasons = text.match(/^E,.*$/gm) || [];
    const isDone = text !== ran.text && reasons.length > 0 && reasons.every((line) => line.endsWith(",done"));
    setTimeout(() => {
      if (document.activeElement === document.body) document.querySelector("#go")?.focus({ preventScroll: true });
    }, 100);
    const tell = (said, index) => (isDone && index === open && index === ran.lesson ? { ...set("visible", true), value: said[bet] } : KEEP);
    return [set("interactive", true), set("interactive", false), ...verdicts.map(tell)];
  }

  // The lesson that is open and what was predicted there.
  let [open, bet] = [-1, ""];
  let ran = {}; // what was open when the run began, and what the stage showed

  function lesson(index, count, preset) {
    const choice = (value) => Array.from({ length: count }, (_, other) => set("visible", value && other === index));
    [open, bet] = [index, ""];
    return [...choice(true), ...choice(false), ...preset];
  }

  function predict(index, chosen) {
    bet = chosen;
  }

  const newSeed = () => Math.floor(Math.random() * 2 ** 31);

  const showKnobs = (methods, chosen) => methods.map((name) => set("visible", name === chosen));

  // The stage hears of every control's value; who comes later reads it in `known`.
  function turn(names, ...values) {
    const detail = Object.fromEntries(names.map((name, index) => [name, values[index]]));
    page.known = detail;
    document.dispatchEvent(new CustomEvent("knobs", { detail }));
  }

  // The address becomes a link to what the controls say.
  function share(controls, ...values) {
    const url = link.make(controls, open, values);
    history.replaceState(null, "", url);
    navigator.clipboard?.writeText(url).catch(() => {}); // the browser may not let us
    return "<p>The address of this page now carries these settings; it is copied too, where the browser allows it.</p>";
  }

  const fromAddress = (controls) => link.open(controls);

  // The controls as the stage wants them, see whatif.js.
  const real = (names, ...values) => names.map((name, index) => (name in page.wanted ? page.wanted[name] : values[index]));

  const press = () => document.querySelector("#go").click();

  // A file that the server packed, as a data URL.
  function save(url) {
    if (url) Object.assign(document.createElement("a"), { href: url, download: "draftboard-run.zip" }).click();
  }

  return { start, end, lesson, predict, newSeed, showKnobs, turn, real, press, share, fromAddress, save };
})();
