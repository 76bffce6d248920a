// Canvases of the stage: each square is painted once, when it is new, and wiped when the clock runs back.

// cividis (Nuñez, Anderton and Renslow 2018) at 33 even steps from 0 to 1; between them colours are mixed.
const CIVIDIS = (
  "00224e00285b002e6a0533711a386f273e6e32436d3b496c434e6c4b546c535a6d" +
  "5a5f6e61656f686a716f70737676767d7c788482798c8878938e789b9476a39a74" +
  "aba072b4a76fbcae6cc4b468cdbb63d5c25edec958e7d150f0d846f9e03afee838"
).match(/.{6}/g).map((hex) => hex.match(/../g).map((part) => parseInt(part, 16)));

function cividis(share) {
  const at = Math.min(1, Math.max(0, share)) * (CIVIDIS.length - 1);
  const [low, high] = [CIVIDIS[Math.floor(at)], CIVIDIS[Math.ceil(at)]];
  return `rgb(${low.map((part, i) => Math.round(part + (at % 1) * (high[i] - part)))})`;
}

const MARKS = { r: "M3 3 13 13M13 3 3 13", x: "M8 2V14M2 8H14", l: "M2 9.5C5 4.5 7 5.5 8 8S11 11.5 14 6.5" };
Object.assign(MARKS, { I: "M8 2V14", C: "M12 4A5.5 5.5 0 1 0 12 12", B: "M4 2V14M14 4A5.5 5.5 0 1 0 14 12" });
MARKS.c = "M8 2A6 6 0 0 0 8 14A6 6 0 0 0 8 2"; // in 16 x 16

// A canvas over a grid of squares. paint(pen, square, box, board) draws one.
class Board {
  constructor(figure, run, lane, paint) {
    Object.assign(this, { figure, lane, rows: run.rows, cols: run.cols, paint, painted: 0, decoded: 0, ghosts: [] });
    this.box = figure.querySelector(".board");
    this.canvas = figure.querySelector("canvas");
    this.pen = this.canvas.getContext("2d");
    figure.style.setProperty("--rows", run.rows);
    figure.style.setProperty("--cols", run.cols);
  }

  // Edges lie on whole pixels, so that neighbours meet without a seam.
  square(index) {
    const [row, col] = [Math.floor(index / this.cols), index % this.cols];
    const x = (col) => Math.round((col * this.canvas.width) / this.cols);
    const y = (row) => Math.round((row * this.canvas.height) / this.rows);
    return [x(col), y(row), x(col + 1) - x(col), y(row + 1) - y(row)];
  }

  resize() {
    for (const canvas of this.box.querySelectorAll("canvas")) {
      canvas.width = Math.round(canvas.clientWidth * devicePixelRatio);
      canvas.height = Math.round(canvas.clientHeight * devicePixelRatio);
    }
    this.repaint();
  }

  repaint() {
    this.wipe(0, this.painted);
    this.painted = 0;
  }

  wipe(from, to) {
    for (let index = from; index < to; index++) this.pen.clearRect(...this.square(index));
  }

  show(count) {
    if (!this.canvas.width) return; // folded away
    if (count < this.painted) this.wipe(count, this.painted);
    for (let index = this.painted; index < count; index++) this.paint(this.pen, index, this.square(index), this);
    this.painted = count;
  }

  // Guesses not decided yet: small squares where they would stand.
  foresee(open, colour) {
    for (const index of this.ghosts) if (index >= this.painted) this.wipe(index, index + 1);
    this.ghosts = [];
    for (const { square, token } of open) {
      if (this.ghosts.at(-1) === square) continue; // the first of siblings stands for them
      const [x, y, width, height] = this.square(square);
      this.pen.fillStyle = colour(token);
      this.pen.fillRect(x + width / 4, y + height / 4, width / 2, height / 2);
      this.ghosts.push(square);
    }
  }

  // Puts an element of the page on a square; none for -1.
  put(name, index) {
    const style = this.box.querySelector(name).style;
    style.display = index < 0 || index >= this.rows * this.cols ? "none" : "block";
    style.left = `${(100 * (index % this.cols)) / this.cols}%`;
    style.top = `${(100 * Math.floor(index / this.cols)) / this.rows}%`;
  }

  // The square under the pointer.
  under(event) {
    const { left, top, width, height } = this.canvas.getBoundingClientRect();
    const at = (share, count) => Math.min(count - 1, Math.max(0, Math.floor(share * count)));
    const [row, col] = [at((event.clientY - top) / height, this.rows), at((event.clientX - left) / width, this.cols)];
    return row * this.cols + col;
  }
}

// A lane's picture: decoded pixels where there are some, else the token's mean colour.
function laneBoard(figure, run, lane, colour) {
  return new Board(figure, run, lane, (pen, index, box, board) => {
    if (index < board.decoded) return pen.drawImage(board.picture, ...box, ...box);
    pen.fillStyle = colour(lane.squares[index].token);
    pen.fillRect(...box);
  });
}

// What is known of each square of a lane, as colours, and marks on a second canvas. look(lane, square): the two of them,
// hatched where there is no colour.
function mapBoard(figure, run, lane, look) {
  const marks = figure.querySelector(".marks").getContext("2d");
  const shown = [];
  const board = new Board(figure, run, lane, (pen, index, box) => {
    const [shade, path] = (shown[index] = look(lane, index));
    if (shade === undefined) hatch(pen, box);
    else {
      pen.fillStyle = shade;
      pen.fillRect(...box);
    }
    mark(marks, path, box);
  });
  board.wipe = (from, to) => {
    Board.prototype.wipe.call(board, from, to);
    for (let index = from; index < to; index++) marks.clearRect(...board.square(index));
  };
  // Paints again what looks different by now.
  board.renew = () => {
    for (let index = 0; index < board.painted; index++) {
      if (String(look(lane, index)) === String(shown[index])) continue;
      board.wipe(index, index + 1);
      board.paint(board.pen, index, board.square(index), board);
    }
  };
  return board;
}

function hatch(pen, [x, y, width, height]) {
  pen.save();
  pen.beginPath();
  pen.rect(x, y, width, height);
  pen.clip();
  pen.fillStyle = "#6b7280";
  pen.fillRect(x, y, width, height);
  pen.strokeStyle = "#d1d5db";
  pen.lineWidth = width / 10;
  pen.beginPath();
  for (let shift = -height; shift < width; shift += width / 3) {
    pen.moveTo(x + shift, y + height);
    pen.lineTo(x + shift + height, y);
  }
  pen.stroke();
  pen.restore();
}

// White over dark, so that it shows on yellow and on navy; 2 over 4 pixels, thinner on small squares.
function mark(pen, path, [x, y, width, height]) {
  if (!path) return;
  pen.save();
  pen.translate(x + width / 4, y + height / 4);
  pen.scale(width / 32, height / 32);
  const thin = Math.min(2 * devicePixelRatio, width / 8) / (width / 32);
  pen.lineCap = "round";
  for (const [colour, thick] of [["#111827", 2], ["#fff", 1]]) {
    pen.strokeStyle = colour;
    pen.lineWidth = thick * thin;
    pen.stroke(new Path2D(path));
  }
  pen.restore();
}
