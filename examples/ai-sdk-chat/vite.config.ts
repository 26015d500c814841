import { defineConfig } from "vite";

const target = process.env.HOLDFAST_URL ?? "http://127.0.0.1:8787";

// As objects, so that the server sees the page's own host: it refuses what another site asks.
export default defineConfig({
  server: { proxy: { "/api/chat": { target }, "/v1": { target, ws: true } } },
});
