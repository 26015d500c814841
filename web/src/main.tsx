import { createClient } from "@holdfast/client";
import { HoldfastProvider } from "@holdfast/react";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { App } from "./app.tsx";
import { startTheme } from "./lib/theme.ts";
import { ToastProvider } from "./ui/toast.tsx";
import "./styles/index.css";

startTheme();
const client = createClient();
const root = document.getElementById("root");
if (!root) throw new Error("index.html has no #root");
createRoot(root).render(
  <StrictMode>
    <HoldfastProvider client={client}>
      <ToastProvider>
        <App />
      </ToastProvider>
    </HoldfastProvider>
  </StrictMode>,
);
