"""The closed list of what a deployment alone shows: codes, severities, the releases they hold for, where to read on.

`docs/findings.md` says the same in prose; a test keeps the two in step.
"""

from __future__ import annotations

from dsd_tune.records.finding import Rule, Severity
from dsd_tune.records.trait import Trait

# The configuration.
NO_TABLE = Rule("no-table", Severity.NOTE, "The config holds no table: K is fixed.")
K_MAX_INVALID = Rule("k-max-invalid", Severity.ERROR, "num_speculative_tokens is missing, no number, or below 1.")
K_MAX_FROM_MODEL = Rule("k-max-from-model", Severity.NOTE, "vLLM takes num_speculative_tokens from the draft model.")
MAX_NUM_SEQS_ASSUMED = Rule(
    "max-num-seqs-assumed", Severity.NOTE, "--max-num-seqs is not given; its default depends on the GPU."
)
DRAFT_SLOTS = Rule(
    "draft-slots",
    Severity.ERROR,
    "The draft slots of all requests leave no room in max_num_batched_tokens.",
    mended=Trait.DRAFT_SLOTS,
    reference="vllm #50708",
)

# The table, as vLLM reads it.
TABLE_SHAPE = Rule(
    "table-shape", Severity.ERROR, "The table is no list of three whole numbers each.", reference="vllm #32374"
)
TABLE_EMPTY = Rule(
    "table-empty", Severity.ERROR, "The table is empty, which is neither on nor off.", reference="vllm #45953"
)
RANGE_NOT_POSITIVE = Rule("range-not-positive", Severity.ERROR, "A range holds batch sizes below 1.")
RANGE_REVERSED = Rule("range-reversed", Severity.ERROR, "A range ends before it starts.")
K_NEGATIVE = Rule("k-negative", Severity.ERROR, "A range has a K below 0.")
RANGE_OVERLAP = Rule("range-overlap", Severity.ERROR, "Two ranges share a batch size.")
TABLE_START = Rule("table-start", Severity.ERROR, "The first range does not start at 1.")
K_ABOVE_MAX = Rule("k-above-max", Severity.ERROR, "A K exceeds num_speculative_tokens and is silently clamped.")
TABLE_GAP = Rule("table-gap", Severity.WARNING, "Batch sizes between ranges get the K before them.")
TABLE_TAIL = Rule("table-tail", Severity.WARNING, "Batch sizes past the last range get its K.")
RANGE_BEYOND = Rule("range-beyond", Severity.WARNING, "A range lies beyond max_num_seqs and is never used.")
TABLE_UNSORTED = Rule("table-unsorted", Severity.NOTE, "The ranges are not in order; vLLM sorts them.")
ALWAYS_ZERO = Rule(
    "always-zero", Severity.WARNING, "K is 0 everywhere, with a drafter loaded and run.", reference="vllm #53416"
)
TABLE_CONSTANT = Rule(
    "table-constant",
    Severity.WARNING,
    "One K everywhere: a fixed K says the same and costs less.",
    reference="vllm #52087",
)
K_MAX_UNUSED = Rule("k-max-unused", Severity.WARNING, "num_speculative_tokens is larger than any K that is reached.")
K_CLIFF = Rule(
    "k-cliff", Severity.WARNING, "K jumps between 0 and 2 or more at one batch size.", reference="vllm #49548"
)
ZERO_FIRST = Rule("zero-first", Severity.NOTE, "The smallest batches, where drafts usually pay most, run at K 0.")

# The release, the model runner, the method, the parallelism.
NO_SUCH_FIELD = Rule(
    "release-without-tables",
    Severity.ERROR,
    "This vLLM knows no tables.",
    mended=Trait.TABLES,
    reference="vllm #32374",
)
TABLE_UNREAD = Rule(
    "table-not-looked-up",
    Severity.ERROR,
    "The scheduler has been changed and takes no K from the table.",
    Trait.TABLES,
    Trait.LOOKUP,
)
RUNNER_WITHOUT_TABLES = Rule(
    "runner-without-tables",
    Severity.ERROR,
    "Model runner V2 refuses tables.",
    Trait.TABLES,
    Trait.TABLES_ON_V2,
    "vllm #45953",
)
METHOD_STOPS = Rule(
    "method-stops-engine",
    Severity.ERROR,
    "This method stops the engine at the first K below the largest.",
    Trait.TABLES,
    Trait.METHOD_GUARD,
    "vllm #46399",
)
METHOD_DROPS = Rule(
    "method-drops-table",
    Severity.ERROR,
    "vLLM drops the table for this method on model runner V1.",
    needs=Trait.METHOD_GUARD,
    reference="vllm #46399",
)
METHOD_IGNORES = Rule(
    "method-ignores-table", Severity.WARNING, "A custom proposer is never told K.", Trait.TABLES, Trait.METHOD_GUARD
)
PARALLEL_DRAFTING = Rule(
    "parallel-drafting",
    Severity.ERROR,
    "PARD and P-EAGLE mix drafts between requests at a smaller K.",
    needs=Trait.TABLES,
)
DRAFTER_GRAPHS = Rule(
    "drafter-graphs",
    Severity.ERROR,
    "Graphs of the drafter get a query length of 0 or less.",
    Trait.TABLES_ON_V2,
    Trait.V2_FOLLOWS_K,
    "vllm #48494",
)
HYBRID_STALE_STATE = Rule(
    "hybrid-stale-state",
    Severity.ERROR,
    "A hybrid model reads stale recurrent state after K drops to 0.",
    Trait.TABLES,
    Trait.HYBRID_STATE,
    "vllm #56531",
)
HYBRID_UNKNOWN = Rule(
    "hybrid-unknown",
    Severity.NOTE,
    "Should the model be hybrid, K = 0 would corrupt its output.",
    Trait.TABLES,
    Trait.HYBRID_STATE,
    "vllm #56531",
)
DP_DEADLOCK = Rule(
    "data-parallel-deadlock",
    Severity.ERROR,
    "Data-parallel ranks may choose different Ks and wait for each other.",
    Trait.TABLES,
    Trait.DATA_PARALLEL_GUARD,
    "vllm #45963",
)
DP_DROPS = Rule(
    "data-parallel-drops-table",
    Severity.ERROR,
    "vLLM drops the table under data parallelism.",
    needs=Trait.DATA_PARALLEL_GUARD,
    reference="vllm #45963",
)
PIPELINE_PARALLEL = Rule(
    "pipeline-parallel",
    Severity.WARNING,
    "Under pipeline parallelism the batch size is that of one microbatch.",
    reference="vllm #53402",
)
RUNNER_DRAFTS_K_MAX = Rule(
    "runner-drafts-k-max",
    Severity.WARNING,
    "Model runner V2 always drafts the largest K.",
    Trait.TABLES_ON_V2,
    Trait.V2_FOLLOWS_K,
    "vllm #51510",
)
METHOD_DRAFTS_K_MAX = Rule(
    "method-drafts-k-max",
    Severity.WARNING,
    "This method always drafts the largest K on model runner V2.",
    needs=Trait.V2_FOLLOWS_K,
    reference="vllm #57053",
)
ADAPTIVE_VERIFICATION = Rule(
    "adaptive-verification",
    Severity.WARNING,
    "Adaptive verification chooses K too; a table only caps it.",
    needs=Trait.ADAPTIVE_VERIFICATION,
    reference="vllm #47808",
)
K_IS_A_CAP = Rule(
    "k-is-a-cap", Severity.NOTE, "This method drafts at most K tokens, often fewer.", reference="vllm #24344"
)
MTP_DEPTH = Rule("mtp-depth", Severity.NOTE, "Only num_speculative_tokens is checked against the model's MTP depth.")
DSPARK_BLOCK = Rule(
    "dspark-block", Severity.NOTE, "Ks below DSpark's block size are not checked.", reference="vllm #50012"
)
DECODES_UNPADDED = Rule(
    "decodes-unpadded",
    Severity.WARNING,
    "New one-token decodes are not padded under a table.",
    needs=Trait.PADS_DECODES,
    reference="vllm #45237",
)

# CUDA graphs.
NO_GRAPHS = Rule("no-graphs", Severity.WARNING, "CUDA graphs are switched off.")
RUNNER_PIECEWISE = Rule(
    "runner-piecewise",
    Severity.WARNING,
    "Under a table, model runner V1 runs PIECEWISE graphs only.",
    needs=Trait.PIECEWISE_ON_V1,
    reference="vllm #52087",
)
GRAPH_MISS = Rule(
    "graph-miss",
    Severity.WARNING,
    "Some batch sizes run without a FULL graph.",
    needs=Trait.TABLES,
    reference="vllm #56136",
)
CEILING_ALONE = Rule(
    "capture-ceiling-alone",
    Severity.WARNING,
    "Given alone, max_cudagraph_capture_size takes away the sizes of each K.",
    needs=Trait.SIZES_PER_K,
    reference="vllm #54933",
)
CAPTURE_CONFLICT = Rule(
    "capture-conflict", Severity.ERROR, "max_cudagraph_capture_size is not the largest capture size."
)
LORA_GRAPHS = Rule(
    "lora-graphs", Severity.WARNING, "Graphs multiply: sizes by Ks by LoRA cases.", needs=Trait.TABLES_ON_V2
)

RULES = tuple(value for value in globals().values() if isinstance(value, Rule))
