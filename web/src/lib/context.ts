import { useEffect, useState } from "react";

/** A place on a branch: the end of a message, or of a step in it. */
type Mark = { readonly message: string; readonly step?: number };

/** A place in the log where what the model is shown became less. */
export type Compaction = {
  readonly seq: number;
  readonly upTo?: Mark;
  readonly summary?: string;
  readonly told?: Mark;
  readonly before: number;
  readonly after: number;
};

/** A piece of a message as the model saw it. */
export type SeenPart = {
  readonly kind: string;
  readonly text?: string;
  readonly cut?: number;
  readonly name?: string;
  readonly failed?: boolean;
  readonly mediaType?: string;
  readonly size?: number;
  readonly url?: string;
  readonly files?: number;
};

/** A message as the model saw it. */
export type SeenMessage = {
  readonly role: string;
  readonly message?: string;
  readonly step?: number;
  readonly tokens: number;
  readonly shortened?: boolean;
  readonly parts: readonly SeenPart[];
};

/** What the model saw at a step. */
export type Seen = {
  readonly exact: boolean;
  readonly reason?: string;
  readonly tokens: number;
  readonly window?: number;
  readonly reported?: number;
  readonly compaction?: Compaction;
  readonly system?: string;
  readonly tools?: readonly { readonly name: string; readonly description?: string }[];
  readonly fixed: number;
  readonly messages: readonly SeenMessage[];
  readonly cut?: number;
};

/** What was asked for: there, on its way, or not to be had. */
export type Loaded<T> =
  | { readonly name: "loading" }
  | { readonly name: "here"; readonly value: T }
  | { readonly name: "failed" };

/** Reads what the model saw at an attempt of a step, once. */
export function useSeen(run: string, step: number, attempt: number): Loaded<Seen> {
  return useRead<Seen>(`/v1/runs/${run}/steps/${step}/context?attempt=${attempt}`);
}

/** The compactions of the active branch, the newest first. They are read again when `when` changes. */
export function useCompactions(session: string, when: string): readonly Compaction[] {
  const read = useRead<{ items: readonly Compaction[] }>(`/v1/sessions/${session}/compactions`, when);
  return read.name === "here" ? read.value.items : none;
}

const none: readonly Compaction[] = [];

/** Reads from the page's own server. What was read before stays until what is read anew is there. */
function useRead<T>(path: string, when = ""): Loaded<T> {
  const [loaded, setLoaded] = useState<Loaded<T>>({ name: "loading" });
  // biome-ignore lint/correctness/useExhaustiveDependencies: it is read again because of `when`.
  useEffect(() => {
    const stop = new AbortController();
    fetch(path, { signal: stop.signal })
      .then(async (answer) => {
        if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
        setLoaded({ name: "here", value: (await answer.json()) as T });
      })
      .catch(() => {
        if (!stop.signal.aborted)
          setLoaded((before) => (before.name === "here" ? before : { name: "failed" }));
      });
    return () => stop.abort();
  }, [path, when]);
  return loaded;
}
