// The page of a model: loads it, and connects the scene with the panel, buttons and keys.

import { ModelScene } from "./model_scene.js";
import { Panel, json } from "./model_panel.js";
import { addThemeButton } from "./theme.js";

const element = (id) => document.getElementById(id);

function report(text) {
  element("message").textContent = text;
  element("message").hidden = text === "";
}

async function start() {
  addThemeButton(element("theme"));
  report("Loading the model…");
  const [description, buffer] = await Promise.all([json("api/model"), fetch("api/points").then((response) => response.arrayBuffer())]);
  document.title = `Caloric: ${description.title}`;
  element("title").textContent = description.title;
  element("summary").textContent = description.summary;
  const panel = new Panel(description, select);
  let scene;
  try { scene = new ModelScene(element("canvas"), description, buffer); } catch {
    report("This browser has no WebGL 2, which the points need. The images are listed on the right.");
    scene = null;
  }
  let selections = 0;

  async function select(target) {
    selections += 1;
    const current = selections;
    try {
      if ("image" in target) {
        const neighbors = await json(`api/neighbors/${target.image}`);
        if (current !== selections) return;
        scene?.select([target.image], neighbors.points);
        await panel.showImage(neighbors);
      } else if ("point" in target) {
        const track = await json(`api/track/${target.point}`);
        if (current !== selections) return;
        scene?.select(track.observations.map(({ image }) => image), [target.point]);
        panel.showTrack(track);
      } else {
        scene?.select([], []);
        panel.clear();
      }
      performance.mark("selected");
    } catch (error) { report(error.message); }
  }

  element("close").addEventListener("click", () => select({}));
  const actions = { c: "cameras", 0: "reset", t: "theme" };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") select({});
    if (event.key in actions) element(actions[event.key]).click();
  });
  if (scene) {
    report("");
    if (description.photographs) scene.loadThumbnails((i) => `api/thumbnail/${i}`);
    let down = null;
    element("canvas").addEventListener("pointerdown", (event) => { down = [event.clientX, event.clientY]; });
    element("canvas").addEventListener("pointerup", (event) => {
      const moved = down === null || Math.hypot(event.clientX - down[0], event.clientY - down[1]) > 4;
      if (!moved && event.button === 0) select(scene.at(event.clientX, event.clientY));
    });
    element("size").addEventListener("input", (event) => scene.setSize(Number(event.target.value)));
    scene.setSize(Number(element("size").value));
    element("reset").addEventListener("click", () => scene.reset());
    element("cameras").addEventListener("click", ({ currentTarget }) => {
      const visible = currentTarget.getAttribute("aria-pressed") !== "true";
      currentTarget.setAttribute("aria-pressed", String(visible));
      scene.showCameras(visible);
    });
  }
  performance.mark("loaded");
}

start().catch((error) => report(error.message));
