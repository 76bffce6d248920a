// The map as a table, for those who do not see it: what became of each square, and the chance that a guess was kept.

const FATE_WORDS = { k: "kept", l: "kept by the loosened rule only", r: "redrawn", x: "extra", d: "no guess" };

function cellWords(lane, square) {
  if (square >= drawn(lane)) return "not drawn yet";
  const chance = acceptance(lane, square);
  return FATE_WORDS[lane.squares[square].fate] + (chance === undefined ? "" : `, ${percent(chance)}`);
}

function showCells() {
  const [box, lane] = [find(".cells"), map?.lane];
  if (!box.open || !lane) return;
  const table = document.createElement("table");
  table.append(cell("caption", `${lane.name}: what became of each square, and the chance that a guess for it was kept`));
  const head = document.createElement("tr");
  head.append(cell("th", "Row"), ...Array.from({ length: run.cols }, (_, col) => cell("th", `Column ${col + 1}`)));
  table.append(head);
  for (let row = 0; row < run.rows; row++) {
    const line = document.createElement("tr");
    const words = Array.from({ length: run.cols }, (_, col) => cell("td", cellWords(lane, row * run.cols + col)));
    line.append(cell("th", row + 1), ...words);
    table.append(line);
  }
  box.querySelector("div").replaceChildren(table);
}

find(".cells").ontoggle = showCells;
