// Source of results and images: the server, or the page itself if it is a self-contained file.

async function asked(path, options) {
  let response;
  try { response = await fetch(path, options); } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not respond; is caloric view still running?");
  }
  if (response.ok) return response;
  let text = `${response.status} ${response.statusText}`;
  try { text = (await response.json()).error; } catch { /* not ours */ }
  throw new Error(text);
}

const json = async (path, options) => (await asked(path, options)).json();
const query = (values) => new URLSearchParams(values).toString();

export const server = {
  live: true,
  state: () => json("api/state"),
  put: (side, file) => json(`api/picture/${side}`,
    { method: "PUT", body: file, headers: { "x-name": encodeURIComponent(file.name) } }),
  preview: (side, version) => `api/picture/${side}?v=${version}`,
  crop: (side, box, version) => `api/crop/${side}?${query({ ...box, v: version })}`,
  matches: (settings, signal) => json(`api/matches?${query(settings)}`, { signal }),
  detail: (settings, match, signal) => json(`api/detail?${query({ ...settings, match })}`, { signal }),
  responses: (side, at) => json(`api/responses/${side}?${query(at)}`),
  align: (at) => json(`api/align?${query(at)}`),
  page: async (settings, beside) => (await asked(`api/page?${query(beside ? { ...settings, beside } : settings)}`)).blob(),
};

// A file contains one result, and optionally that of another descriptor.
export function still(data) {
  const { own, other } = data;
  return {
    live: false,
    other: other?.descriptor ?? null,
    state: async () => ({
      pictures: data.pictures, descriptors: [own.descriptor], models: [own.model], views: [],
      chosen: { descriptor: own.descriptor, model: own.model, threshold: own.threshold },
    }),
    preview: (side) => data.previews[side],
    matches: async (settings) => (settings.descriptor === own.descriptor ? own : other),
    align: async () => data.path,
    path: data.path,
  };
}
