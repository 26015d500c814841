import { failureOf, Problem } from "@holdfast/client";
import { X } from "lucide-react";
import {
  createContext,
  type ReactElement,
  type ReactNode,
  useCallback,
  useContext,
  useMemo,
  useRef,
  useState,
} from "react";

type Toast = { readonly id: number; readonly text: string };

type Toasts = {
  /** Says something for a while. */
  readonly say: (text: string) => void;
  /** Waits for a command, and says why it failed if it does: "Could not rename it: …". */
  readonly act: (what: string, command: Promise<unknown>) => void;
};

const ToastContext = createContext<Toasts>({ say: () => {}, act: () => {} });

/** Long enough to be read aloud. */
const shownFor = 7_000;

/** Where short messages are shown, and spoken by screen readers. */
export function ToastProvider(props: { children: ReactNode }): ReactElement {
  const [toasts, setToasts] = useState<readonly Toast[]>([]);
  const last = useRef(0);
  const drop = useCallback((id: number) => setToasts((all) => all.filter((toast) => toast.id !== id)), []);
  const say = useCallback(
    (text: string) => {
      const id = ++last.current;
      setToasts((all) => [...all.slice(-2), { id, text }]);
      setTimeout(() => drop(id), shownFor);
    },
    [drop],
  );
  const value = useMemo<Toasts>(
    () => ({
      say,
      act(what, command) {
        command.catch((error: unknown) => say(`Could not ${what}: ${explain(error)}`));
      },
    }),
    [say],
  );
  return (
    <ToastContext.Provider value={value}>
      {props.children}
      <div className="toasts" role="status" aria-live="polite">
        {toasts.map((toast) => (
          <div key={toast.id} className="toast">
            <span>{toast.text}</span>
            <button
              type="button"
              className="icon-button small"
              aria-label="Dismiss"
              onClick={() => drop(toast.id)}
            >
              <X size={16} />
            </button>
          </div>
        ))}
      </div>
    </ToastContext.Provider>
  );
}

/** The way to show a short message. */
export function useToasts(): Toasts {
  return useContext(ToastContext);
}

/** What an error says to a person. */
export function explain(error: unknown): string {
  if (error instanceof Problem && error.code === "approval_decided" && error.approval) {
    const { status, by } = error.approval;
    return `it was ${status} ${by ? `by ${by}` : "by somebody else"} first.`;
  }
  if (error instanceof Problem && error.code === "approval_gone") return "it expired, or its run has ended.";
  const { message } = failureOf(error);
  return /[.!?]$/.test(message) ? message : `${message}.`;
}
