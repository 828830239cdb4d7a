// The scene: points in color and cameras with thumbnails, drawn with three.js when something changes.

import {
  BufferAttribute, BufferGeometry, DoubleSide, LineBasicMaterial, LineSegments, Mesh, MeshBasicMaterial, OrbitControls,
  PerspectiveCamera, Points, Raycaster, Scene, ShaderMaterial, SRGBColorSpace, Texture, Vector2, Vector3, WebGLRenderer,
} from "./vendor/three.min.js";

const ORANGE = 0xff9d6b, BLUE = 0x7cc4ff;
const OPACITY = 0.85, FADED = 0.12;  // of thumbnails, and of those that are not selected
const NEAR = 8;  // pixels around a click in which a point is selected
const OUTSIDE = 0.025;  // share of the points that may be outside of the first view, on each side
const MANY = 100000;  // points, for which antialiasing is too slow without a GPU
const SLOW = 33, FAST = 20;  // milliseconds per frame, to draw fewer or more points while moving
const REST = 250;  // milliseconds without motion, after which all points are drawn
const TEXTURES = 400;  // maximum number of cameras with thumbnails

const VERTEX = `attribute vec3 color; uniform float size; varying vec3 shade;
void main() { shade = color; gl_Position = projectionMatrix * modelViewMatrix * vec4(position, 1.0); gl_PointSize = size; }`;
const FRAGMENT = `varying vec3 shade; uniform float fade;
void main() { vec2 p = gl_PointCoord - 0.5; if (dot(p, p) > 0.25) discard; gl_FragColor = vec4(shade * fade, 1.0); }`;

function pointsOf(buffer, count) {
  const geometry = new BufferGeometry();
  geometry.setAttribute("position", new BufferAttribute(new Float32Array(buffer, 0, 3 * count), 3));
  const rgba = new Uint8Array(buffer, 12 * count, 4 * count), rgb = new Uint8Array(3 * count);
  for (let i = 0; i < count; i += 1) rgb.set(rgba.subarray(4 * i, 4 * i + 3), 3 * i);
  geometry.setAttribute("color", new BufferAttribute(rgb, 3, true));
  const material = new ShaderMaterial({ vertexShader: VERTEX, fragmentShader: FRAGMENT, uniforms: { size: { value: 2 }, fade: { value: 1 } } });
  const points = new Points(geometry, material);
  points.frustumCulled = false;
  return points;
}

// The center and the four corners of the image plane of a camera, in the coordinates of the scene.
function corners(image, depth) {
  const r = image.rotation;
  const x = (image.width / 2 / image.focal) * depth, y = (image.height / 2 / image.focal) * depth;
  const world = ([a, b, c]) => [0, 1, 2].map((i) => image.center[i] + r[i] * a + r[3 + i] * b + r[6 + i] * c);
  return [[0, 0, 0], [-x, -y, depth], [x, -y, depth], [x, y, depth], [-x, y, depth]].map(world);
}

const EDGES = [[0, 1], [0, 2], [0, 3], [0, 4], [1, 2], [2, 3], [3, 4], [4, 1]].flat();

// The outlines of all cameras as one object, since many objects are slow to draw.
function outlinesOf(cameras) {
  const geometry = new BufferGeometry();
  const positions = cameras.flatMap((points) => EDGES.flatMap((i) => points[i]));
  geometry.setAttribute("position", new BufferAttribute(new Float32Array(positions), 3));
  geometry.setAttribute("color", new BufferAttribute(new Float32Array(positions.length), 3));
  const outlines = new LineSegments(geometry, new LineBasicMaterial({ vertexColors: true }));
  outlines.frustumCulled = false;
  return outlines;
}

function plane(points) {
  const geometry = new BufferGeometry();
  const [, a, b, c, d] = points;
  geometry.setAttribute("position", new BufferAttribute(new Float32Array([...a, ...b, ...c, ...d]), 3));
  geometry.setAttribute("uv", new BufferAttribute(new Float32Array([0, 1, 1, 1, 1, 0, 0, 0]), 2));
  geometry.setIndex([0, 1, 2, 0, 2, 3]);
  return new Mesh(geometry, new MeshBasicMaterial({ color: 0x8892a0, side: DoubleSide, transparent: true, opacity: OPACITY }));
}

export class ModelScene {
  constructor(canvas, description, buffer) {
    this.canvas = canvas;
    this.description = description;
    this.renderer = new WebGLRenderer({ canvas, antialias: devicePixelRatio < 1.5 && description.points < MANY });
    this.renderer.setClearColor(0x0c0f13);
    this.scene = new Scene();
    this.camera = new PerspectiveCamera(50, 1, 0.001, 200);
    this.camera.up.set(...description.up);
    this.points = pointsOf(buffer, description.points);
    this.scene.add(this.points);
    const cameras = description.images.map((image) => corners(image, description["camera depth"]));
    this.outlines = outlinesOf(cameras);
    this.planes = cameras.map(plane);
    this.scene.add(this.outlines, ...this.planes);
    this.colorOutlines([]);
    this.marks = null;
    this.withCameras = true;
    this.shown = description.points;  // while the view moves
    this.withThumbnails = true;  // while the view moves
    this.controls = new OrbitControls(this.camera, canvas);
    this.controls.addEventListener("change", () => this.draw(true));
    this.controls.listenToKeyEvents(canvas);
    new ResizeObserver(() => this.resize()).observe(canvas.parentElement);
    this.resize();
    this.reset();
  }

  loadThumbnails(url) {
    this.description.images.slice(0, TEXTURES).forEach((_, i) => {
      const photograph = new Image();
      photograph.onload = () => {
        const texture = new Texture(photograph);
        texture.colorSpace = SRGBColorSpace;
        texture.needsUpdate = true;
        const { material } = this.planes[i];
        material.map = texture;
        material.color.set(0xffffff);
        material.needsUpdate = true;
        this.draw();
      };
      photograph.src = url(i);
    });
  }

  reset() {
    const up = new Vector3(...this.description.up), side = new Vector3();
    // From behind the cameras and slightly above them.
    for (const { rotation } of this.description.images) side.sub(new Vector3(rotation[6], rotation[7], rotation[8]));
    side.addScaledVector(up, -side.dot(up));
    if (side.length() < 1e-6) side.set(1, 0, 0).cross(up);
    this.fit(side.normalize().addScaledVector(up, 0.44).normalize(), up);
    this.controls.update();
    this.draw();
  }

  // Look at the scene from a direction and a distance at which most points and all cameras are in the view.
  fit(direction, up) {
    const right = up.clone().cross(direction).normalize(), upward = direction.clone().cross(right);
    const { array } = this.points.geometry.attributes.position, step = 3 * Math.ceil(this.description.points / 20000);
    const coordinates = this.description.images.map(({ center }) => new Vector3(...center));
    const cameras = coordinates.length;
    for (let i = 0; i < array.length; i += step) coordinates.push(new Vector3().fromArray(array, i));
    for (const p of coordinates) p.set(p.dot(right), p.dot(upward), p.dot(direction));
    const middle = (values) => { values.sort((a, b) => a - b); return (values[Math.floor(OUTSIDE * values.length)] + values[Math.floor((1 - OUTSIDE) * values.length)]) / 2; };
    const [x, y, z] = ["x", "y", "z"].map((axis) => middle(coordinates.map((p) => p[axis])));
    const vertical = Math.tan((Math.PI / 360) * this.camera.fov), horizontal = vertical * this.camera.aspect;
    const distances = coordinates.map((p) => p.z - z + Math.max(Math.abs(p.x - x) / horizontal, Math.abs(p.y - y) / vertical));
    const nearest = Math.max(...distances.splice(0, cameras)), inView = distances.sort((a, b) => a - b)[Math.floor((1 - 2 * OUTSIDE) * (distances.length - 1))];
    this.controls.target.set(0, 0, 0).addScaledVector(right, x).addScaledVector(upward, y).addScaledVector(direction, z);
    this.camera.position.copy(this.controls.target).addScaledVector(direction, 1.05 * Math.max(nearest, inView, 0.1));
  }

  resize() {
    const { clientWidth, clientHeight } = this.canvas.parentElement;
    if (!clientWidth || !clientHeight) return;
    this.renderer.setPixelRatio(Math.min(devicePixelRatio, 2));
    this.renderer.setSize(clientWidth, clientHeight, false);
    this.camera.aspect = clientWidth / clientHeight;
    this.camera.updateProjectionMatrix();
    this.draw();
  }

  // Draw in the next frame. While the view moves, omit thumbnails and then points if it is slow.
  draw(moving = false) {
    this.moving = moving;
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame((now) => {
      this.pending = false;
      const { points } = this.description, duration = now - (this.drawn ?? 0);
      this.drawn = now;
      if (this.moving) {
        if (duration > SLOW && duration < REST * 4) {
          if (this.withThumbnails) this.withThumbnails = false;
          else this.shown = Math.max(5000, this.shown * 0.7);
        }
        if (duration < FAST) this.shown *= 1.1;
        clearTimeout(this.rest);
        this.rest = setTimeout(() => this.draw(), REST);
      }
      this.shown = Math.min(this.shown, points);
      this.points.geometry.setDrawRange(0, this.moving ? Math.round(this.shown) : points);
      const thumbnails = this.withCameras && (this.withThumbnails || !this.moving);
      for (const mesh of this.planes) mesh.visible = thumbnails;
      this.renderer.render(this.scene, this.camera);
    });
  }

  setSize(size) {
    this.points.material.uniforms.size.value = size * Math.min(devicePixelRatio, 2);
    this.draw();
  }

  showCameras(visible) {
    this.withCameras = this.outlines.visible = visible;
    this.draw();
  }

  // What is at a position of the page: {image: i}, {point: i}, or {}.
  at(clientX, clientY) {
    const box = this.canvas.getBoundingClientRect();
    const x = clientX - box.left, y = clientY - box.top;
    const position = this.points.geometry.attributes.position.array, projected = new Vector3();
    let best = -1, nearest = Infinity, distance = Infinity;
    for (let i = 0; i < this.description.points; i += 1) {
      projected.fromArray(position, 3 * i).project(this.camera);
      if (Math.abs(projected.z) > 1) continue;
      const off = Math.hypot((projected.x + 1) * box.width / 2 - x, (1 - projected.y) * box.height / 2 - y);
      // A nearer point is preferred to one a little closer to the click.
      if (off < NEAR && off + 400 * projected.z < nearest) { nearest = off + 400 * projected.z; best = i; }
    }
    if (best >= 0) distance = new Vector3().fromArray(position, 3 * best).distanceTo(this.camera.position);
    const ray = new Raycaster();
    ray.setFromCamera(new Vector2(2 * x / box.width - 1, 1 - 2 * y / box.height), this.camera);
    const [hit] = ray.intersectObjects(this.withCameras ? this.planes : []);
    if (hit && hit.distance < distance) return { image: this.planes.indexOf(hit.object) };
    return best >= 0 ? { point: best } : {};
  }

  colorOutlines(selected) {
    const { color } = this.outlines.geometry.attributes, chosen = new Set(selected);
    const [orange, blue] = [ORANGE, BLUE].map((value) => new LineBasicMaterial({ color: value }).color);
    this.planes.forEach((_, i) => {
      const { r, g, b } = chosen.has(i) ? blue : orange;
      for (let j = 0; j < EDGES.length; j += 1) color.setXYZ(i * EDGES.length + j, r, g, b);
    });
    color.needsUpdate = true;
  }

  // Emphasize images by number; draw lines between points and camera centers.
  select(images, points) {
    this.colorOutlines(images);
    this.planes.forEach(({ material }, i) => { material.opacity = images.length && !images.includes(i) ? FADED : OPACITY; });
    if (this.marks) this.scene.remove(this.marks);
    this.marks = null;
    const position = this.points.geometry.attributes.position.array, lines = [];
    for (const point of points) for (const i of images) lines.push(...position.subarray(3 * point, 3 * point + 3), ...this.description.images[i].center);
    if (lines.length) {
      const geometry = new BufferGeometry();
      geometry.setAttribute("position", new BufferAttribute(new Float32Array(lines), 3));
      this.marks = new LineSegments(geometry, new LineBasicMaterial({ color: BLUE, transparent: true, opacity: points.length > 1 ? 0.12 : 0.9 }));
      this.marks.frustumCulled = false;
      this.scene.add(this.marks);
    }
    this.points.material.uniforms.fade.value = images.length ? 0.6 : 1;
    this.draw();
  }
}
