// Panels under the picture, one open at a time behind a row of tabs. What a panel shows is its own file's business.

const panels = []; // { id, fits, show, tab, box }, in the order of the tabs
let opened = null; // the panel that is open
let knobs = {}; // what the controls of the page say, by "Method-knob", or by the knob's name for sampling

// fits(): whether the run on the stage has something for it. show(box): draws into its box; called in every frame while
// it is open, so it must find out by itself whether anything changed.
function addPanel(id, title, fits, show) {
  const tab = document.createElement("button");
  const box = find(`.panel[data-panel="${id}"]`) || document.createElement("div");
  Object.assign(tab, { type: "button", className: "tab", textContent: title, id: `tab-${id}`, role: "tab" });
  Object.assign(box, { id: `panel-${id}`, role: "tabpanel", className: "panel" });
  box.dataset.panel = id;
  tab.setAttribute("aria-controls", box.id);
  box.setAttribute("aria-labelledby", tab.id);
  tab.onclick = () => openPanel(id);
  find(".tabs").append(tab);
  find(".panels").append(box);
  panels.push({ id, fits, show, tab, box });
  opened ||= panels[0];
}

function openPanel(id) {
  opened = panels.find((panel) => panel.id === id) || opened;
  wake();
}

function showPanels() {
  const fitting = panels.filter((panel) => panel.fits());
  if (!fitting.includes(opened)) opened = fitting[0] || panels[0];
  for (const panel of panels) {
    write(panel.tab, "hidden", !fitting.includes(panel));
    write(panel.tab, "ariaSelected", String(panel === opened));
    write(panel.tab, "tabIndex", panel === opened ? 0 : -1);
    write(panel.box, "hidden", panel !== opened);
  }
  write(find(".panels"), "hidden", !seen);
  if (seen) opened.show(opened.box);
}

find(".tabs").addEventListener("keydown", (event) => {
  const turn = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!turn) return;
  event.preventDefault();
  const tabs = panels.filter((panel) => !panel.tab.hidden);
  const next = tabs[(tabs.indexOf(opened) + turn + tabs.length) % tabs.length];
  openPanel(next.id);
  next.tab.focus();
});

document.addEventListener("knobs", ({ detail }) => {
  knobs = detail;
  wake();
});
