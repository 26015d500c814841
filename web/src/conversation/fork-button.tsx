import type { Message } from "@holdfast/client";
import { useClient } from "@holdfast/react";
import { GitFork } from "lucide-react";
import { type ReactElement, useState } from "react";
import { navigate } from "../lib/route.ts";
import { IconButton } from "../ui/icon-button.tsx";
import { useToasts } from "../ui/toast.tsx";
import { useSessionActions } from "./session-context.ts";

/** Begins another conversation with a copy of this one up to a message, and goes there. */
export function ForkButton({ message }: { message: Message }): ReactElement {
  const { mirror } = useSessionActions();
  const { api } = useClient();
  const { act } = useToasts();
  const [forking, setForking] = useState(false);

  async function fork(): Promise<void> {
    setForking(true);
    try {
      const { session } = await api.fork(mirror.id, { message: message.id });
      navigate({ name: "session", session: session.id });
    } finally {
      setForking(false);
    }
  }

  return (
    <IconButton
      small
      label="Fork from here"
      disabled={forking}
      onClick={() => act("fork the conversation", fork())}
    >
      <GitFork size={16} />
    </IconButton>
  );
}
