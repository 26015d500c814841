import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

const server = process.env.HOLDFAST_URL ?? "http://127.0.0.1:8787";

// The build is the same on every machine: web/dist is kept in git, and compared.
export default defineConfig({
  plugins: [react()],
  resolve: { conditions: ["@holdfast/source", "module", "browser", "production"] },
  build: {
    target: ["chrome111", "firefox114", "safari16.4"],
    assetsInlineLimit: 0, // the policy of the page lets no data: URL be a font
    license: { fileName: "licenses.md" },
    modulePreload: { polyfill: false },
  },
  server: {
    proxy: { "/v1": { target: server, ws: true }, "/healthz": server, "/readyz": server },
  },
});
