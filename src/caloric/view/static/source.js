// Where numbers and pictures come from: the server, or the page itself when it was written to a file.

async function asked(path, options) {
  const response = await fetch(path, options);
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
  matches: (choice, signal) => json(`api/matches?${query(choice)}`, { signal }),
  detail: (choice, match, signal) => json(`api/detail?${query({ ...choice, match })}`, { signal }),
  responses: (side, at) => json(`api/responses/${side}?${query(at)}`),
  align: (at) => json(`api/align?${query(at)}`),
};

export function still(data) {
  return {
    live: false,
    state: async () => data.state,
    preview: (side) => data.previews[side],
    matches: async () => data.matches,
  };
}
