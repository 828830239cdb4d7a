// A result in words.

const MODELS = { homography: "a homography", affine: "an affine map", fundamental: "a fundamental matrix" };

export const number = (n) => n.toLocaleString("en");
export const inliers = (found) => found.inlier.reduce((sum, one) => sum + one, 0);
export const title = (name) => (name === "sift" ? "SIFT" : name === "caloric" ? "Caloric" : name);

export function confidence(found) {
  const p = found.confidence;
  return p > 0.995 ? "> 0.99" : p < 0.005 ? "< 0.01" : p.toFixed(2);
}

// What the simulated views had to do with it; empty if there was no need for any.
export function level(found) {
  if (found.level <= 1) return "";
  return found.believed ? `found at tilt ${found.level}` : `views to tilt ${found.level} tried in vain`;
}

// The parts of one line, the most important first.
export function sentence(found) {
  const count = inliers(found), all = number(found.inlier.length);
  if (!found.inlier.length) return ["No matches", title(found.descriptor), `${found.features.map(number).join(" and ")} features`];
  const parts = [`of ${all} matches`, title(found.descriptor), `confidence ${confidence(found)}`];
  if (!found.believed) parts.push("may be chance");
  if (level(found)) parts.push(level(found));
  return [`${number(count)} inliers`, ...parts];
}

// Why nothing is to be seen, and what to try; empty if there is something.
export function nothing(found) {
  if (!found) return "";
  if (Math.min(...found.features) === 0) return "There are no features in one of the pictures: it is flat or very small.";
  if (!found.inlier.length) return "No matches. The pictures may show different things; a ratio test nearer to 1 keeps more.";
  if (!inliers(found)) return "No geometry explains these matches. Outliers (o) shows them.";
  return "";
}

// [name, value] of what is known of a result.
export function facts(found) {
  const rows = [["Descriptor", title(found.descriptor)], ["Features", found.features.map(number).join(" and ")],
    ["Matches", `${number(found.inlier.length)}${found.refined ? ", refined" : ""}`],
    ["Inliers", `${number(inliers(found))} of ${MODELS[found.model] ?? found.model}, within ${found.threshold} px`],
    ["Confidence", `${confidence(found)}${found.believed ? "" : ", may be chance"}`],
    ["Views", level(found) || "none needed"]];
  return rows;
}
