// Source of results and images: the server, or the data embedded in a self-contained page.

async function request(path, options) {
  let response;
  try { response = await fetch(path, options); } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not respond. Is caloric view still running?");
  }
  if (response.ok) return response;
  let text = `${response.status} ${response.statusText}`;
  try { text = (await response.json()).error; } catch { /* not a JSON error of the server */ }
  throw new Error(text);
}

const json = async (path, options) => (await request(path, options)).json();
const query = (values) => new URLSearchParams(values).toString();

export const server = {
  live: true,
  state: () => json("api/state"),
  // files: {a: file, b: file}, or one of them
  upload: (files, options) => {
    const rows = Object.entries(files).flatMap(([side, file]) => [["side", side], ["name", file.name], ["size", file.size]]);
    return json(`api/images?${query(rows)}`, { ...options, method: "PUT", body: new Blob(Object.values(files)) });
  },
  restore: () => json("api/restore", { method: "PUT" }),
  step: (id) => json(`api/progress/${id}`).then(({ step }) => step, () => ""),
  preview: (side, version) => `api/image/${side}?v=${version}`,
  crop: (side, box, version) => `api/crop/${side}?${query({ ...box, v: version })}`,
  matches: (settings, options) => json(`api/matches?${query(settings)}`, options),
  detail: (settings, match, signal) => json(`api/detail?${query({ ...settings, match })}`, { signal }),
  responses: (side, at, options) => json(`api/responses/${side}?${query(at)}`, options),
  align: (at, options) => json(`api/align?${query(at)}`, options),
  page: async (settings, compare, options) => (await request(`api/page?${query(compare ? { ...settings, compare } : settings)}`, options)).blob(),
};

// A self-contained page has one result, and optionally that of another descriptor.
export function embedded(data) {
  const { result, comparison } = data;
  return {
    live: false,
    comparedDescriptor: comparison?.descriptor ?? null,
    state: async () => ({
      images: data.images, descriptors: [result.descriptor], models: [result.model], views: [],
      settings: { descriptor: result.descriptor, model: result.model, threshold: result.threshold },
    }),
    preview: (side) => data.previews[side],
    matches: async (settings) => (settings.descriptor === result.descriptor ? result : comparison),
    align: async () => data.alignment,
    step: async () => "",
    alignment: data.alignment,
  };
}
