// Text that describes a result.

const MODELS = { affine: "affine map", fundamental: "fundamental matrix" };

export const number = (n) => n.toLocaleString("en");
export const pixels = (n) => Number(n.toPrecision(2)).toString();
export const countInliers = (result) => result.inlier.reduce((sum, inlier) => sum + inlier, 0);
export const countPropagated = (result) => result.inlier.reduce((sum, inlier, i) => sum + (inlier && result.propagated[i]), 0);
export const displayName = (descriptor) => ({ sift: "SIFT", caloric: "Caloric" }[descriptor] ?? descriptor);

function confidence(result) {
  const p = result.confidence;
  return p > 0.995 ? "> 0.99" : p < 0.005 ? "< 0.01" : p.toFixed(2);
}

// The parts of a one-line summary, the most important first.
export function summary(result) {
  const name = displayName(result.descriptor), tilt = `simulated views up to tilt ${result.level}`;
  if (!result.inlier.length) return ["No matches", name, `${result.features.map(number).join(" and ")} features`];
  const parts = [`of ${number(result.inlier.length)} matches`, name, `confidence ${confidence(result)}`];
  if (!result.reliable) parts.push(result.level > 1 ? `not reliable, even with ${tilt}` : "not reliable");
  else if (result.level > 1) parts.push(tilt);
  return [`${number(countInliers(result))} inliers`, ...parts];
}

// Why no matches are shown, and what to try; empty if some are.
export function emptyMessage(result) {
  if (!result) return "";
  if (Math.min(...result.features) === 0) return "One of the images has no features; it may lack texture or be very small.";
  if (!result.inlier.length) return "No matches. The images may show different scenes; a ratio test closer to 1 keeps more matches.";
  if (!countInliers(result)) return "No geometry fits these matches. Press o to show the outliers.";
  return "";
}

// [name, value] of each property of a result.
export function properties(result) {
  return [["Descriptor", displayName(result.descriptor)], ["Features", result.features.map(number).join(" and ")],
    ["Matches", `${number(result.inlier.length)}${result.refined ? ", refined" : ""}`],
    ["Geometry", MODELS[result.model] ?? result.model],
    ["Inliers", `${number(countInliers(result))} within ${pixels(result.threshold)} px, ${number(countPropagated(result))} propagated`],
    ["Confidence", `${confidence(result)}${result.reliable ? "" : ", not reliable"}`],
    ...(result.reason ? [["Reason", result.reason]] : []),
    ["Views", result.level > 1 ? `up to tilt ${result.level}` : "not used"]];
}
