import type { OnBusy, Run } from "@holdfast/client";
import { useDraft } from "@holdfast/react";
import { ArrowUp, LoaderCircle, Paperclip, Square, X } from "lucide-react";
import { type ReactElement, type RefObject, useId, useRef, useState } from "react";
import { useAgents } from "../lib/agents.ts";
import { isMac } from "../lib/shortcuts.ts";
import { IconButton } from "../ui/icon-button.tsx";
import { useToasts } from "../ui/toast.tsx";
import { type Attachment, partsOf, readFiles } from "./attachments.ts";
import { useSessionActions } from "./session-context.ts";

type Props = {
  /** Under which name what is typed is kept. */
  readonly draftKey: string;
  /** The active run. */
  readonly run: Run | undefined;
  readonly stopping: boolean;
  /** Whether a first message will begin the session: then the agent can be chosen. */
  readonly fresh: boolean;
  readonly inputRef: RefObject<HTMLTextAreaElement | null>;
  readonly onSent: () => void;
};

type Mode = OnBusy | "background";

const modes: readonly { mode: Mode; label: string; hint: string }[] = [
  { mode: "enqueue", label: "Queue", hint: "Said when this run has ended" },
  { mode: "steer", label: "Steer", hint: "Told to the run before its next step" },
  { mode: "interrupt", label: "Interrupt", hint: "Stops the run, keeps what it said, and goes next" },
  {
    mode: "background",
    label: "Background",
    hint: "Answered beside the conversation, which is told the result",
  },
];

function placeholderOf(run: Run | undefined): string {
  if (!run) return "Ask anything";
  return run.status === "running" ? "Say more while it works" : "Say more while it waits";
}

/** Where a person types. */
export function Composer({ draftKey, run, stopping, fresh, inputRef, onSent }: Props): ReactElement {
  const { mirror } = useSessionActions();
  const { act, say } = useToasts();
  const agents = useAgents();
  const [text, setText] = useDraft(draftKey);
  const [attachments, setAttachments] = useState<readonly Attachment[]>([]);
  const [mode, setMode] = useState<Mode>("enqueue");
  const [agent, setAgent] = useState<string>();
  const [dropping, setDropping] = useState(false);
  const picker = useRef<HTMLInputElement>(null);
  const hintId = useId();
  const active = run !== undefined;
  const ready = text.trim() !== "" || attachments.length > 0;

  function send(): void {
    if (!ready) return;
    mirror.send(partsOf(text.trim(), attachments), {
      ...(mode === "background" ? { background: true } : active && { onBusy: mode }),
      ...(fresh && agent && { agent }),
    });
    setText("");
    setAttachments([]);
    setMode("enqueue");
    onSent();
  }

  async function attach(files: readonly File[]): Promise<void> {
    if (files.length === 0) return;
    const { read, problem } = await readFiles(files, attachments);
    if (problem) say(problem);
    setAttachments((all) => [...all, ...read]);
    inputRef.current?.focus();
  }

  const hint = active
    ? modes.find((m) => m.mode === mode)?.hint
    : "Enter sends, Shift + Enter begins a new line";

  return (
    <form
      className={`composer ${dropping ? "dropping" : ""}`}
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
      onDragOver={(event) => {
        if (!event.dataTransfer.types.includes("Files")) return;
        event.preventDefault();
        setDropping(true);
      }}
      onDragLeave={() => setDropping(false)}
      onDrop={(event) => {
        event.preventDefault();
        setDropping(false);
        act("read the file", attach([...event.dataTransfer.files]));
      }}
    >
      {attachments.length > 0 && (
        <ul className="attachments" aria-label="Files to send">
          {attachments.map((file) => (
            <li key={file.id} className="attachment">
              <span className="truncate">{file.name}</span>
              <IconButton
                small
                label={`Leave out ${file.name}`}
                onClick={() => setAttachments((all) => all.filter(({ id }) => id !== file.id))}
              >
                <X size={14} />
              </IconButton>
            </li>
          ))}
        </ul>
      )}
      <textarea
        ref={inputRef}
        rows={1}
        aria-label="Message"
        aria-describedby={hintId}
        placeholder={placeholderOf(run)}
        value={text}
        onChange={(event) => setText(event.target.value)}
        onPaste={(event) => {
          const files = [...event.clipboardData.files];
          if (files.length === 0) return;
          event.preventDefault();
          act("read the file", attach(files));
        }}
        onKeyDown={(event) => {
          if (event.key === "Enter" && !event.shiftKey && !event.nativeEvent.isComposing) {
            event.preventDefault();
            send();
          }
        }}
      />
      <div className="composer-foot">
        <IconButton label="Attach files" onClick={() => picker.current?.click()}>
          <Paperclip size={18} />
        </IconButton>
        <input
          ref={picker}
          type="file"
          multiple
          hidden
          onChange={(event) => {
            act("read the file", attach([...(event.target.files ?? [])]));
            event.target.value = "";
          }}
        />
        {fresh && agents.items.length > 1 && (
          <select
            className="select"
            aria-label="Agent"
            value={agent ?? agents.default}
            onChange={(event) => setAgent(event.target.value)}
          >
            {agents.items.map(({ name }) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        )}
        {ready && active && (
          <fieldset className="modes">
            <legend className="sr-only">How it is said while a run is active</legend>
            {modes.map((m) => (
              <label key={m.mode} title={m.hint}>
                <input type="radio" name="mode" checked={mode === m.mode} onChange={() => setMode(m.mode)} />
                {m.label}
              </label>
            ))}
          </fieldset>
        )}
        {ready && !active && (
          <label className="aside-choice" title={modes.at(-1)?.hint}>
            <input
              type="checkbox"
              checked={mode === "background"}
              onChange={(event) => setMode(event.target.checked ? "background" : "enqueue")}
            />
            In the background
          </label>
        )}
        <span className="spacer" />
        {active && (
          <button
            type="button"
            className={`stop ${stopping ? "sending" : ""}`}
            disabled={stopping}
            aria-label={stopping ? "Stopping" : "Stop"}
            title={`Stop the run (${isMac ? "⌘." : "Ctrl + ."})`}
            onClick={() => act("stop it", mirror.stop(run.id))}
          >
            {stopping ? (
              <LoaderCircle size={14} className="spin" />
            ) : (
              <Square size={12} fill="currentColor" />
            )}
            <span className="stop-word">{stopping ? "Stopping…" : "Stop"}</span>
          </button>
        )}
        <button type="submit" className="send" aria-label="Send" title="Send" disabled={!ready}>
          <ArrowUp size={18} strokeWidth={2.4} />
        </button>
      </div>
      <p id={hintId} className="sr-only">
        {hint}
      </p>
    </form>
  );
}
