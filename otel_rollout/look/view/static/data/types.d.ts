/** The server's JSON; null is unknown. `make docs` writes the types of summaries. */

// table: summaries
export interface Spread {
  lowest: number;
  mean: number;
  highest: number;
}

export interface Percentiles {
  mean: number;
  p50: number;
  p99: number;
  highest: number;
}

export interface ToolCounts {
  calls: number;
  errors: number;
}

export interface GroupSummary {
  step: number | null;
  validate: boolean;
  experiment_name: string | null;
  run_id: string | null;
  sample_index: number | string | null;
  prompt: string;
  trace_ids: string[];
  rollout_ns: (number | string | null)[];
  rewards: (number | null)[];
  statuses: (string | null)[];
  reward_std: number | null;
  solved: number | null;
  zero_variance: string | null;
  tokens: Spread | null;
  turns: Spread | null;
  seconds: Spread | null;
  duplicates: number;
  first_divergence: number | null;
  tool_calls: number;
  tool_errors: number;
  end_time: number;
}

export interface SpanError {
  name: string;
  kind: string;
  type: string;
  is_mended: boolean;
  is_first: boolean;
}

export interface StepSummary {
  step: number | null;
  validate: boolean;
  experiment_name: string | null;
  run_id: string | null;
  sole_run_id: string | null;
  attempt: number | null;
  trajectories: number;
  groups: number;
  start_time: number;
  end_time: number;
  reward_mean: number | null;
  reward_parts: Record<string, number>;
  tools: Record<string, ToolCounts>;
  turns: Percentiles | null;
  tokens: Percentiles | null;
  seconds: Percentiles | null;
  unread_answers: number;
  prefix_breaks: number;
  staleness: Percentiles | null;
  fates: Record<string, number>;
  dropped_spans: number;
  truncated_bytes: number;
  redacted: number;
  spans: number;
  bytes: number;
  stored_bytes: number;
  rewarded: number;
  reward_std: number | null;
  reward_lowest: number | null;
  reward_highest: number | null;
  group_std: number | null;
  scale_lowest: number | null;
  scale_highest: number | null;
  solved: number | null;
  comparable_groups: number;
  zero_variance: Record<string, number>;
  errors: number;
  truncated: number;
  cancelled: number;
  rootless: number;
  truncated_with_worst_reward: number;
  error_types: Record<string, number>;
  last_5_percent_share: number | null;
  duplicates: number;
}

export interface Conversation {
  id: number;
  kind: "main" | "subagent" | "fork" | "compacted" | "user";
  parent: number | null;
  parent_turn: number | null;
  joined_turn: number | null;
  shared: number;
  replaced: number | null;
  name: string;
  turns: number[];
  input_tokens: number | null;
  output_tokens: number | null;
  messages: number;
  trained: boolean | null;
  start_time: number;
  end_time: number;
  conversation_id: string;
  inferred: boolean;
}

export interface TrajectorySummary {
  trace_id: string;
  step: number | null;
  sample_index: number | string | null;
  rollout_n: number | string | null;
  validate: boolean;
  experiment_name: string | null;
  project_name: string | null;
  run_id: string | null;
  worker: string;
  name: string;
  start_time: number;
  end_time: number;
  has_root: boolean;
  status: string | null;
  reward: number | null;
  spans: number;
  service_name: string | null;
  host: string | null;
  engine: string | null;
  finish_reason: string | null;
  reward_parts: Record<string, number>;
  advantage: number | null;
  fate: string | null;
  fate_reason: string | null;
  log_prob_gap: number | null;
  log_prob_gap_max: number | null;
  entropy: number | null;
  importance_weight: number | null;
  late: Record<string, number>;
  turns: number | null;
  input_tokens: number | null;
  output_tokens: number | null;
  output_characters: number;
  user_turns: number | null;
  user_input_tokens: number | null;
  user_output_tokens: number | null;
  user_seconds: number;
  two_sides: boolean;
  conversations: number;
  subagents: number;
  forks: number;
  compactions: number;
  llm_seconds: number;
  tool_seconds: number;
  reward_seconds: number;
  waiting_seconds: number;
  tools: Record<string, ToolCounts>;
  repeated_calls: number;
  unknown_tool_calls: number;
  unparsed_tool_calls: number;
  odd_results: Record<string, number>;
  result_keys: Record<string, string[]>;
  unread_answers: number;
  invalid_rewards: number;
  errors: SpanError[];
  error_type: string | null;
  prefix_breaks: number;
  min_weights_version: number | null;
  max_weights_version: number | null;
  staleness: number | null;
  dropped_spans: number;
  truncated_bytes: number;
  redacted: number;
  prompt: string;
  answer: string;
  turn_hashes: string[];
  bytes: number;
  stored_bytes: number;
}

export interface RolloutFacts {
  trace_id: string;
  sample_index: number | string | null;
  rollout_n: number | string | null;
  start_time: number;
  has_root: boolean;
  status: string | null;
  reward: number | null;
  finish_reason: string | null;
  advantage: number | null;
  fate: string | null;
  turns: number | null;
  input_tokens: number | null;
  output_tokens: number | null;
  conversations: number;
  subagents: number;
  forks: number;
  compactions: number;
  error_type: string | null;
  prefix_breaks: number;
  prompt: string;
  answer: string;
}
// end

/** A trajectory as a row of its step. */
export interface Rollout extends RolloutFacts {
  seconds: number;
  tool_calls: number;
  tool_errors: number;
  /** The service and the name of one without a sample, as other programs' traces are; else null. */
  service: string | null;
  name: string | null;
}

export interface ToolCall {
  name: string;
  arguments: unknown;
  call_id: string | null;
}

export interface Utterance {
  role: string;
  text: string;
  calls: ToolCall[];
  name: string | null;
  call_id: string | null;
  span_id: string | null;
  turn: number | null;
  is_error: boolean;
  /** The id of its conversation; 1 in a trajectory without turns. */
  conversation: number;
  reasoning: string | null;
  tokens: { input: number | null; output: number | null } | null;
  token_ids: number[] | null;
  cut: number | null;
}

export interface Span {
  span_id: string;
  parent_id: string | null;
  name: string;
  kind: string;
  start_time: string;
  end_time: string;
  status: string;
  error: string | null;
  attributes: Record<string, unknown>;
  /** The characters that are cut from attributes. */
  cut?: Record<string, number>;
  events: {
    name: string;
    time?: string;
    attributes?: Record<string, unknown>;
    cut?: Record<string, number>;
  }[];
  turn: number | null;
  /** The conversation of a turn, or of a span inside a sub-agent's. */
  conversation: number | null;
  prefix_break: { at: number | null; expected: unknown; got: unknown } | null;
}

export interface RunAnswer {
  version: string;
  title: string;
  folders: string[];
  steps: StepSummary[];
  /** The folder of each run that has one of its own, if several runs have the same steps. */
  run_folders?: Record<string, string>;
  is_live: boolean;
  waiting?: string | null;
  problems: string[];
  /** Sentences about the attempts of resumed runs of which trajectories are left out. */
  attempts?: string[];
  progress: { done: number; total: number } | null;
}

export interface StepAnswer {
  version: string;
  summary: StepSummary;
  groups: GroupSummary[];
  columns: string[];
  rows: unknown[][];
}

export interface GroupAnswer {
  version: string;
  summary: GroupSummary;
  /** `left_out`: the messages that are left out of the conversation's middle. */
  rollouts: {
    summary: TrajectorySummary;
    conversation: Utterance[];
    conversations: Conversation[];
    left_out?: number;
  }[];
  /** The rollouts that are left out of a very large group. */
  left_out?: number;
  other_steps: GroupSummary[];
  previous: number | string | null;
  next: number | string | null;
}

export interface TrajectoryAnswer {
  version: string;
  summary: TrajectorySummary;
  conversation: Utterance[];
  conversations: Conversation[];
  /** The messages that are left out of the conversation's middle. */
  left_out?: number;
  /** The spans that are left out of the middle of a very long list. */
  spans_left_out?: number;
  spans: Span[];
  group: {
    step: number | null;
    validate: boolean;
    experiment: string | null;
    run: string | null;
    sample_index: number | string | null;
  };
  /** The attempt of a resumed run. */
  attempt?: number | null;
  /** A later attempt has overtaken it. */
  is_overtaken?: boolean;
  previous: string | null;
  next: string | null;
}

export interface TimelineLane {
  trace_id: string;
  sample_index: number | string | null;
  rollout_n: number | string | null;
  status: string | null;
  reward: number | null;
  has_root?: boolean;
  start: number;
  end: number;
  segments: number[];
}

export interface TimelineAnswer {
  version: string;
  start_time: string;
  end_time: string;
  names: string[];
  lanes: TimelineLane[];
}

export interface SearchHit {
  trace_id: string;
  step: number | null;
  validate: boolean;
  experiment_name?: string | null;
  run_id?: string | null;
  sample_index: number | string | null;
  rollout_n: number | string | null;
  reward: number | null;
  status: string | null;
  where: string;
  span_id?: string | null;
  excerpt: string;
  start: number;
  end: number;
}

export type SearchLine =
  | { hit: SearchHit }
  | { done: true; searched_bytes: number; hits: number; is_cut: boolean; unreadable?: number }
  | { searched_bytes: number; total_bytes: number }
  | { error: string };

export interface Evidence {
  trace_id: string;
  step: number | null;
  validate: boolean;
  sample_index: number | string | null;
  rollout_n: number | string | null;
  command: string;
  /** Its address in the pages, from `#` on. */
  address: string;
}

/** A check that is above its threshold; fields as in otel_rollout/facts/findings. */
export interface Finding {
  check: string;
  title: string;
  subject: string;
  severity: string;
  experiment_name: string | null;
  run_id: string | null;
  validate: boolean;
  steps: (number | null)[];
  compares_steps: boolean;
  number: number;
  total: number;
  share: number;
  measured: string;
  meaning: string;
  advice: string;
  evidence: Evidence[];
}

/** A figure of two runs; its numbers are texts, but for the ends and the place of its interval's line. */
export interface ComparedFigure {
  name: string;
  title: string;
  before: string;
  after: string;
  change: string;
  interval: string;
  low: number;
  high: number;
  at: number;
  of: string;
  verdict: string;
}

export interface Flip {
  sample_index: number | string | null;
  prompt: string;
  before: number;
  after: number;
  rollouts: [number, number];
  steps: [number | null, number | null];
}

export interface ComparedPart {
  validate: boolean;
  over: string;
  figures: ComparedFigure[];
  flips: string | null;
  lost: Flip[];
  gained: Flip[];
  too_few: string[];
}

/** Two runs compared; fields as in otel_rollout/look/view/comparing.py. */
export interface CompareAnswer {
  version: string;
  verdict: string;
  is_worse: boolean;
  left_out: string;
  parts: ComparedPart[];
  gone: Finding[];
  new: Finding[];
}

/** A prompt's rollouts of one step; `solved` by the scale of the run's rewards. */
export interface PromptStep {
  group: GroupSummary;
  solved: number | null;
}

export interface PromptAnswer {
  version: string;
  sample_index: number | string | null;
  prompt: string;
  steps: PromptStep[];
  /** The usual lowest and highest reward of the run's steps; null: they are unknown, or all rewards are one. */
  lowest: number | null;
  highest: number | null;
  solved_above: number;
  /** The first step that solves it by more than half. */
  first_solved: number | null;
  /** The first of the last steps, of which none has a solved rollout; null if it is not forgotten. */
  forgotten: number | null;
}

/** A selected part of a run: what `validate`, `experiment` and `run` say in an address. */
export interface Selection {
  validate?: boolean;
  experiment?: string | null;
  run?: string | null;
}

export type PageName = "run" | "step" | "group" | "trajectory" | "timeline" | "prompt" | "search" | "live" | "unknown";

/** An address of the pages, as `data/router.js` reads it. */
export interface Route extends Selection {
  page: PageName;
  /** The step as in the address: a number or `none`. */
  step?: string;
  sample?: string;
  rollout?: string;
  traceId?: string;
  /** Everything after `?` but the selection. */
  query: Record<string, string>;
}

declare global {
  interface Window {
    /** The data of an exported page, by name; filled by its scripts `data/<name>.js`. */
    otelRolloutData?: Record<string, unknown>;
  }
}

export interface RunningTrajectory {
  trace_id: string;
  name: string;
  step: number | null;
  sample_index: number | string | null;
  rollout_n: number | string | null;
  validate: boolean;
  experiment_name: string | null;
  run_id: string | null;
  /** Nanoseconds since 1970, to some hundred. */
  start_time: number;
  seconds: number;
  op: string | null;
  op_kind: string;
  op_seconds: number | null;
  op_p99: number | null;
  ops: number;
  /** The beginning of the op's input, as JSON. */
  op_input: string;
  worker: string;
  host: string;
  is_alive: boolean;
  is_late: boolean;
  silent_seconds: number;
}

export interface StepWait {
  step: number | null;
  validate: boolean;
  experiment_name: string | null;
  running: number;
  ended: number;
  ops: Record<string, number>;
  longest: RunningTrajectory;
}

export interface OpenCounts {
  open: number;
  /** Those of a process that has ended, or gives no sign of life. */
  left: number;
}

export interface OpenAnswer extends OpenCounts {
  steps: (OpenCounts & { step: number | null; validate: boolean; experiment_name: string | null })[];
}

export interface LiveAnswer {
  trajectories: RunningTrajectory[];
  open: number;
  waits: StepWait[];
  /** Why there are none. */
  why: string;
}
