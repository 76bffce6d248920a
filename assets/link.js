// Links that carry what is asked for: prompt, method, knobs, seed, or a lesson. Every value is held to its control's range.
const link = (() => {
  const KEEP = { __type__: "update" };

  // What a control takes of a text, undefined where it means nothing to it. A control's limits: see `limits` in app.py.
  function within({ low, high, whole, empty, choices, longest }, text) {
    if (longest) return text.trim() ? text.slice(0, longest) : undefined;
    if (choices) return choices.find((choice) => String(choice) === text);
    if (text.trim() === "") return empty ? null : undefined;
    const number = Number(text);
    if (Number.isNaN(number)) return undefined;
    const held = Math.min(high ?? Infinity, Math.max(low ?? -Infinity, number));
    return whole ? Math.round(held) : held;
  }

  // The controls' values as the address has them; what it does not name stays. A lesson sets all by itself.
  function open(controls) {
    const asked = new URLSearchParams(location.search);
    const lesson = document.getElementById(`lesson-${asked.get("lesson")}`);
    if (lesson) {
      lesson.click();
      return controls.map(() => KEEP);
    }
    return controls.map((control) => {
      const value = asked.has(control.id) ? within(control, asked.get(control.id)) : undefined;
      return value === undefined ? KEEP : value;
    });
  }

  // A link to what the controls say now: prompt, method and the like always, knobs where they are not as they begin.
  function make(controls, lesson, values) {
    const told = new URLSearchParams(lesson < 0 ? {} : { lesson: lesson + 1 });
    if (lesson < 0) {
      controls.forEach(({ id, first, always }, index) => {
        if (always || values[index] !== first) told.set(id, values[index] ?? "");
      });
    }
    return `${location.origin}${location.pathname}?${told}`;
  }

  return { within, open, make };
})();
