// Text that describes a result.

const MODELS = { homography: "a homography", affine: "an affine map", fundamental: "a fundamental matrix" };

export const number = (n) => n.toLocaleString("en");
export const inliers = (found) => found.inlier.reduce((sum, one) => sum + one, 0);
export const title = (name) => (name === "sift" ? "SIFT" : name === "caloric" ? "Caloric" : name);

export function confidence(found) {
  const p = found.confidence;
  return p > 0.995 ? "> 0.99" : p < 0.005 ? "< 0.01" : p.toFixed(2);
}

// The role of simulated views; empty if none were needed.
export function level(found) {
  if (found.level <= 1) return "";
  return found.reliable ? `found at tilt ${found.level}` : `no reliable match with simulated views up to tilt ${found.level}`;
}

// The parts of a one-line summary, the most important first.
export function sentence(found) {
  const count = inliers(found), all = number(found.inlier.length);
  if (!found.inlier.length) return ["No matches", title(found.descriptor), `${found.features.map(number).join(" and ")} features`];
  const parts = [`of ${all} matches`, title(found.descriptor), `confidence ${confidence(found)}`];
  if (!found.reliable) parts.push("not reliable");
  if (level(found)) parts.push(level(found));
  return [`${number(count)} inliers`, ...parts];
}

// Why nothing is shown, and what to try; empty if something is.
export function nothing(found) {
  if (!found) return "";
  if (Math.min(...found.features) === 0) return "One of the images has no features: it has no texture or is very small.";
  if (!found.inlier.length) return "No matches. The images may show different scenes; a ratio test closer to 1 keeps more matches.";
  if (!inliers(found)) return "No geometry fits these matches. Press o to show the outliers.";
  return "";
}

// [name, value] of each property of a result.
export function facts(found) {
  const rows = [["Descriptor", title(found.descriptor)], ["Features", found.features.map(number).join(" and ")],
    ["Matches", `${number(found.inlier.length)}${found.refined ? ", refined" : ""}`],
    ["Inliers", `${number(inliers(found))} of ${MODELS[found.model] ?? found.model}, within ${found.threshold} px`],
    ["Confidence", `${confidence(found)}${found.reliable ? "" : ", not reliable"}`],
    ["Views", level(found) || "none needed"]];
  return rows;
}
