import type { SessionView, ToolCall } from "@holdfast/client";
import { useMirror, useSession } from "@holdfast/react";
import { ArrowUpRight } from "lucide-react";
import type { ReactElement } from "react";
import { briefJson, toolTitle } from "../lib/words.ts";
import { Link } from "../ui/link.tsx";
import { ApprovalForm } from "./approval-form.tsx";

type Child = NonNullable<ToolCall["child"]>;

/** What a subagent does at this moment, what it asks, and the way to its conversation. */
export function ChildRun({ child, ended }: { child: Child; ended: boolean }): ReactElement {
  return (
    <div className="child">
      {!ended && <Live child={child} />}
      <Link className="button link" to={{ name: "session", session: child.session }}>
        Open the conversation of {toolTitle(child.agent)}
        <ArrowUpRight size={14} aria-hidden="true" />
      </Link>
    </div>
  );
}

const all = (view: SessionView): SessionView => view;

function Live({ child }: { child: Child }): ReactElement {
  const view = useSession(child.session, all);
  const mirror = useMirror(child.session);
  const deciding = (approval: string) => {
    const gesture = view.gestures.find((g) => g.kind === "decide" && g.approval === approval);
    return gesture?.kind === "decide" ? gesture.decision : undefined;
  };
  return (
    <>
      <p className="child-now" aria-live="polite">
        {doing(view)}
      </p>
      {view.approvals.map((approval) => (
        <ApprovalForm
          key={approval.id}
          approval={approval}
          deciding={deciding(approval.id)}
          decide={mirror.decide}
        />
      ))}
    </>
  );
}

/** What the subagent does, in a line. */
function doing({ run, messages, approvals, status }: SessionView): string {
  if (approvals.length > 0) return "It asks you:";
  if (!run) return status.name === "loading" ? "…" : "It has ended.";
  const last = messages.at(-1);
  const calls = last?.parts.flatMap(({ tool }) => (tool && !tool.endedAt ? [tool] : [])) ?? [];
  if (calls.length > 0) return calls.map((c) => `${toolTitle(c.name)} ${briefJson(c.arguments)}`).join(" · ");
  if (run.status === "queued") return "It waits for a worker.";
  const said = last?.role === "assistant" ? last.parts.findLast((p) => p.type === "text")?.text?.trim() : "";
  return said?.split("\n").at(-1)?.slice(-160) || "It thinks.";
}
