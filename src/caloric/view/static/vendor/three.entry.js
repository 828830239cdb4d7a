// The exports of three.js in three.min.js. To update it:
//   npm install three esbuild
//   npx esbuild three.entry.js --bundle --minify --format=esm --legal-comments=inline --outfile=three.min.js

export {
  BufferAttribute, BufferGeometry, LineBasicMaterial, LineSegments, Mesh, MeshBasicMaterial, PerspectiveCamera,
  PlaneGeometry, Points, Raycaster, Vector2, Scene, ShaderMaterial, SRGBColorSpace, Texture, Vector3, WebGLRenderer, DoubleSide
} from "three";
export { OrbitControls } from "three/examples/jsm/controls/OrbitControls.js";
