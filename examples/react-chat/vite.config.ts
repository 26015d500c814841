import { defineConfig } from "vite";

export default defineConfig({
  // In this repository the packages are used as they are written. Outside of it, leave this out.
  resolve: { conditions: ["@holdfast/source", "module", "browser", "production"] },
  server: { proxy: { "/v1": { target: process.env.HOLDFAST_URL ?? "http://127.0.0.1:8787", ws: true } } },
});
