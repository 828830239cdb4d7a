// The panel: all images, the images that observe a point, or an image with its matches.

const DOT = "#35d6ff", MARK = "#ff6a3d";
const LINES = 60;  // maximum number of lines between two images; all matches have points

export async function json(path) {
  const response = await fetch(path);
  if (!response.ok) throw new Error((await response.json()).error);
  return response.json();
}

function loaded(path) {
  return new Promise((resolve) => {
    const photograph = new Image();
    photograph.onload = () => resolve(photograph);
    photograph.onerror = () => resolve(null);
    photograph.src = path;
  });
}

function entry(image, note, select) {
  const item = document.createElement("li"), button = document.createElement("button");
  const name = document.createElement("span"), hint = document.createElement("span");
  name.textContent = image.name;
  hint.textContent = note;
  hint.className = "hint";
  button.type = "button";
  button.title = image.name;
  button.append(name, hint);
  button.addEventListener("click", select);
  item.append(button);
  return { item, button };
}

// A crop around a position of an image, for the track of a point.
async function drawCrop(canvas, image, number, { x, y }) {
  canvas.width = 192;
  canvas.height = 144;
  const photograph = await loaded(`api/preview/${number}`);
  if (!photograph) return;
  const scale = photograph.naturalWidth / image.width, width = Math.max(40, photograph.naturalWidth / 12), height = width * 0.75;
  const context = canvas.getContext("2d");
  context.drawImage(photograph, (x + 0.5) * scale - width / 2, (y + 0.5) * scale - height / 2, width, height, 0, 0, 192, 144);
  context.strokeStyle = MARK;
  context.lineWidth = 2;
  context.beginPath();
  context.arc(96, 72, 10, 0, 7);
  context.stroke();
}

export class Panel {
  constructor(description, select) {
    this.images = description.images;
    this.photographs = description.photographs;
    this.select = select;
    this.list = document.querySelector("#images ul");
    this.section = document.getElementById("selection");
    this.canvas = document.getElementById("photograph");
    this.list.append(...this.images.map((image, i) => this.thumbnail(i, `${image.points.toLocaleString("en")} points`, () => select({ image: i })).item));
  }

  thumbnail(number, note, select) {
    const made = entry(this.images[number], note, select);
    if (this.photographs) {
      const photograph = document.createElement("img");
      photograph.loading = "lazy";
      photograph.alt = "";
      photograph.src = `api/thumbnail/${number}`;
      made.button.prepend(photograph);
    }
    return made;
  }

  show(title, text) {
    document.getElementById("images").hidden = true;
    this.section.hidden = false;
    this.section.querySelector("h2").textContent = title;
    this.section.querySelector("p").textContent = text;
    this.section.querySelector("ul").replaceChildren();
    this.canvas.hidden = true;
    document.getElementById("panel").scrollTop = 0;
  }

  clear() {
    document.getElementById("images").hidden = false;
    this.section.hidden = true;
  }

  showTrack({ point, error, observations }) {
    this.show(`Point ${point}`, `Observed in ${observations.length} images, mean reprojection error ${error.toFixed(2)} px`);
    for (const observation of observations) {
      const { item, button } = entry(this.images[observation.image], `${observation.x.toFixed(1)}, ${observation.y.toFixed(1)}`, () => this.select({ image: observation.image }));
      if (this.photographs) {
        const canvas = document.createElement("canvas");
        button.prepend(canvas);
        drawCrop(canvas, this.images[observation.image], observation.image, observation);
      }
      this.section.querySelector("ul").append(item);
    }
  }

  async showImage({ image, xy, neighbors }) {
    const shown = this.images[image];
    this.show(shown.name, `${xy.length.toLocaleString("en")} points; shares points with ${neighbors.length} ${neighbors.length === 1 ? "image" : "images"}. Select one to see the matches.`);
    const list = this.section.querySelector("ul");
    for (const { image: other, common } of neighbors) {
      const { item, button } = this.thumbnail(other, `${common.toLocaleString("en")} common`, async () => {
        for (const pressed of list.querySelectorAll("[aria-pressed=true]")) pressed.removeAttribute("aria-pressed");
        button.setAttribute("aria-pressed", "true");
        this.section.querySelector("p").textContent = `${common.toLocaleString("en")} points in common with ${this.images[other].name}. Lines connect some of them.`;
        await this.drawMatches(image, other, await json(`api/matches/${image}/${other}`));
      });
      list.append(item);
    }
    const photograph = this.photographs ? await loaded(`api/preview/${image}`) : null;
    const context = this.prepare([[shown, photograph]], `${shown.name} with its points`);
    context.fillStyle = DOT;
    for (const [x, y] of xy) context.fillRect((x + 0.5) * this.scale - 1, (y + 0.5) * this.scale - 1, 2.5, 2.5);
  }

  // Draw images one above the other and return the context; this.tops has their vertical offsets.
  prepare(rows, label) {
    this.canvas.hidden = false;
    this.canvas.setAttribute("aria-label", label);
    const width = 2 * this.canvas.clientWidth || 600;
    this.scale = width / Math.max(...rows.map(([image]) => image.width));
    this.tops = [];
    let height = 0;
    for (const [image] of rows) { this.tops.push(height); height += Math.round(image.height * this.scale); }
    this.canvas.width = width;
    this.canvas.height = height;
    const context = this.canvas.getContext("2d");
    rows.forEach(([image, photograph], i) => {
      if (photograph) context.drawImage(photograph, 0, this.tops[i], image.width * this.scale, image.height * this.scale);
    });
    return context;
  }

  async drawMatches(first, second, matches) {
    const numbers = [first, second];
    const photographs = await Promise.all(numbers.map((i) => (this.photographs ? loaded(`api/preview/${i}`) : null)));
    const rows = numbers.map((number, i) => [this.images[number], photographs[i]]);
    const context = this.prepare(rows, `${matches.length} common points of ${rows[0][0].name} and ${rows[1][0].name}`);
    const step = Math.max(1, Math.ceil(matches.length / LINES));
    matches.forEach(([x, y, u, v], i) => {
      // The color depends on the position in the first image, so that lines can be followed.
      context.strokeStyle = context.fillStyle = `hsl(${(300 * x) / rows[0][0].width} 95% 62%)`;
      const [ax, ay] = [(x + 0.5) * this.scale, (y + 0.5) * this.scale];
      const [bx, by] = [(u + 0.5) * this.scale, this.tops[1] + (v + 0.5) * this.scale];
      for (const [cx, cy] of [[ax, ay], [bx, by]]) context.fillRect(cx - 1.5, cy - 1.5, 3, 3);
      if (i % step) return;
      context.lineWidth = 1.5;
      context.beginPath();
      context.moveTo(ax, ay);
      context.lineTo(bx, by);
      context.stroke();
    });
    this.canvas.scrollIntoView({ block: "nearest" });
  }
}
