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
  upload: (side, file) => json(`api/image/${side}`,
    { method: "PUT", body: file, headers: { "x-name": encodeURIComponent(file.name) } }),
  preview: (side, version) => `api/image/${side}?v=${version}`,
  crop: (side, box, version) => `api/crop/${side}?${query({ ...box, v: version })}`,
  matches: (settings, signal) => json(`api/matches?${query(settings)}`, { signal }),
  detail: (settings, match, signal) => json(`api/detail?${query({ ...settings, match })}`, { signal }),
  responses: (side, at) => json(`api/responses/${side}?${query(at)}`),
  align: (at) => json(`api/align?${query(at)}`),
  page: async (settings, compare) => (await request(`api/page?${query(compare ? { ...settings, compare } : settings)}`)).blob(),
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
    alignment: data.alignment,
  };
}
