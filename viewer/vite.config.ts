/** How the page is built: into the Python package, with no third-party origin and nothing inlined that a CSP forbids. */

import { fileURLToPath } from "node:url";
import { defineConfig } from "vite";

export default defineConfig({
  base: "./",
  resolve: {
    alias: [
      { find: /^numcodecs\/.*$/, replacement: fileURLToPath(new URL("./src/reading/no-codec.ts", import.meta.url)) },
    ],
  },
  build: {
    outDir: "../src/diptych/server/static",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 2000, // NiiVue, which is loaded only when a volume is first shown
  },
  server: { proxy: { "/api": "http://127.0.0.1:8765" } },
});
