"""Inputs that must be refused: (name, input, part of the field, part of the rule).

The parts are compared without regard to case. What is a rule's exact wording
is the validator's own business; that field and rule are named is the contract.
"""

GOOD = {
    "operation": "OPERATION_FWD",
    "x_dims": [16, 64, 56, 56],
    "w_dims": [64, 64, 3, 3],
    "pad_low": [1, 1],
    "data_type": "DATA_TYPE_F16",
    "layout": "TENSOR_LAYOUT_NHWC",
}
GOOD_TEXT = "fwd,x=16x64x56x56,w=64x64x3x3,pad=1,nhwc,f16"

MAX32 = 2**31


def _problem(**changes):
    merged = {**GOOD, **changes}
    return {k: v for k, v in merged.items() if v is not None}


# Field by field.
PROBLEMS = [
    ("operation missing", _problem(operation=None), "operation", "required"),
    ("operation unknown", _problem(operation=99), "operation", "99"),
    ("x missing", _problem(x_dims=None), "x_dims", "has 0"),
    ("w missing", _problem(w_dims=None), "w_dims", "has 0"),
    ("x too short", _problem(x_dims=[16, 64]), "x_dims", "3 to 5"),
    ("x too long", _problem(x_dims=[1, 64, 4, 4, 4, 4]), "x_dims", "3 to 5"),
    ("ranks differ", _problem(w_dims=[64, 64, 3]), "w_dims", "x_dims"),
    ("x dimension zero", _problem(x_dims=[0, 64, 56, 56]), "x_dims[0]", "from 1 to"),
    ("x dimension negative", _problem(x_dims=[16, 64, -56, 56]), "x_dims[2]", "from 1 to"),
    ("x dimension too large", _problem(x_dims=[MAX32, 64, 56, 56]), "x_dims[0]", "2^31-1"),
    ("x elements overflow", _problem(x_dims=[MAX32 - 1, 64, MAX32 - 1, MAX32 - 1]), "x_dims", "2^48"),
    ("w dimension zero", _problem(w_dims=[64, 64, 0, 3]), "w_dims[2]", "from 1 to"),
    ("w dimension negative", _problem(w_dims=[-64, 64, 3, 3]), "w_dims[0]", "from 1 to"),
    ("w dimension too large", _problem(w_dims=[64, 64, 3, 2**40]), "w_dims[3]", "2^31-1"),
    ("channels differ", _problem(w_dims=[64, 32, 3, 3]), "w_dims[1]", "groups"),
    ("groups negative", _problem(groups=-1), "groups", "from 1 to"),
    ("groups do not divide C", _problem(groups=3), "groups", "divide"),
    ("groups do not divide K", _problem(groups=32, w_dims=[48, 2, 3, 3]), "groups", "divide"),
    ("groups above C", _problem(groups=128), "groups", "64"),
    ("pad negative", _problem(pad_low=[-1, 1]), "pad_low[0]", "from 0 to"),
    ("pad_high negative", _problem(pad_high=[1, -2]), "pad_high[1]", "from 0 to"),
    ("pad count", _problem(pad_low=[1, 1, 1]), "pad_low", "2"),
    ("pad overflows", _problem(pad_low=[2**62, 2**62]), "pad_low[0]", "2^31-1"),
    ("stride zero", _problem(strides=[0, 1]), "strides[0]", "from 1 to"),
    ("stride negative", _problem(strides=[1, -1]), "strides[1]", "from 1 to"),
    ("stride count", _problem(strides=[1, 1, 1]), "strides", "2"),
    ("dilation zero", _problem(dilations=[0]), "dilations[0]", "from 1 to"),
    ("dilation count", _problem(dilations=[1, 1, 1]), "dilations", "2"),
    ("output vanishes", _problem(x_dims=[1, 64, 2, 56], pad_low=[0, 0]), "x_dims[2]", "output"),
    ("output vanishes by dilation", _problem(dilations=[1, 100]), "x_dims[3]", "output"),
    ("data type i32", _problem(data_type="DATA_TYPE_I32"), "data_type", "i32"),
    ("data type unknown", _problem(data_type=77), "data_type", "77"),
    ("compute type of f64", _problem(data_type="DATA_TYPE_F64", compute_type="DATA_TYPE_F16"), "compute_type",
     "f64"),
    ("compute type of i8", _problem(data_type="DATA_TYPE_I8", compute_type="DATA_TYPE_F64"), "compute_type", "i8"),
    ("intermediate without epilogue", _problem(intermediate_type="DATA_TYPE_F32"), "intermediate_type", "epilogue"),
    ("layout unknown", _problem(layout=9), "layout", "9"),
    ("strides without layout", _problem(layout=None, x_strides=[1, 2, 3, 4]), "w_strides", "required"),
    ("strided without strides", _problem(layout="TENSOR_LAYOUT_STRIDED"), "layout", "x_strides"),
    (
        "some strides only",
        _problem(layout="TENSOR_LAYOUT_STRIDED", x_strides=[200704, 1, 3584, 64]),
        "w_strides", "required",
    ),
    (
        "strides that overlap",
        _problem(layout=None, x_strides=[1, 1, 1, 1], w_strides=[576, 9, 3, 1], y_strides=[200704, 3136, 56, 1]),
        "x_strides", "overlap",
    ),
    ("epilogue of bwd_data", _problem(operation="OPERATION_BWD_DATA", epilogue=["EPILOGUE_OP_BIAS"]), "epilogue",
     "forward"),
    ("epilogue order", _problem(epilogue=["EPILOGUE_OP_RELU", "EPILOGUE_OP_BIAS"]), "epilogue", "bias"),
    ("alignment no power of two", _problem(alignment_bytes=3), "alignment_bytes", "power of two"),
    ("alignment too large", _problem(alignment_bytes=512), "alignment_bytes", "256"),
    ("sm count negative", _problem(sm_count_target=-1), "sm_count_target", "0 to 1024"),
    ("sm count too large", _problem(sm_count_target=5000), "sm_count_target", "1024"),
    ("mode unknown", _problem(mode=5), "mode", "5"),
]  # fmt: skip

# Text form: (name, text, token, rule). Both are in the rule of the field
# "text", since that is what the caller sent.
TEXTS = [
    ("empty text", "", "", "empty"),
    ("no operation", "x=16x64x56x56,w=64x64x3x3", "operation", "first token"),
    ("operation misspelt", "forward,x=16x64x56x56,w=64x64x3x3", "operation", "forward"),
    ("operation twice", GOOD_TEXT + ",bwd_data", "operation", "twice"),
    ("x missing in text", "fwd,w=64x64x3x3", "x", "has 0"),
    ("w missing in text", "fwd,x=16x64x56x56", "w", "has 0"),
    ("token unknown", GOOD_TEXT + ",colour=red", "colour", "unknown"),
    ("word unknown", GOOD_TEXT + ",nice", "nice", "unknown"),
    ("token doubled", GOOD_TEXT + ",pad=2", "pad", "twice"),
    ("layout doubled", GOOD_TEXT + ",nchw", "nchw", "second layout"),
    ("type doubled", GOOD_TEXT + ",f32", "f32", "second data type"),
    ("dimension empty", "fwd,x=16x64xx56,w=64x64x3x3", "x", "number"),
    ("dimension no number", "fwd,x=16x64xAx56,w=64x64x3x3", "x", "number"),
    ("dimension overflows int64", "fwd,x=16x64x56x99999999999999999999999,w=64x64x3x3", "x", "64 bits"),
    ("dimension zero in text", "fwd,x=16x64x0x56,w=64x64x3x3", "x", "from 1 to"),
    ("dimension negative in text", "fwd,x=16x64x-5x56,w=64x64x3x3", "x", "-5"),
    ("six dimensions", "fwd,x=1x1x1x1x1x1,w=1x1x1x1x1x1", "x", "3 to 5"),
    ("groups in text", GOOD_TEXT + ",groups=7", "groups", "divide"),
    ("groups empty", GOOD_TEXT + ",groups=", "groups", "number"),
    ("output vanishes in text", "fwd,x=1x3x2x2,w=8x3x5x5", "x", "output"),
    ("pad with three sides", "fwd,x=16x64x56x56,w=64x64x3x3,pad=1:1:1x1", "pad", "1:1"),
    ("pad negative in text", "fwd,x=16x64x56x56,w=64x64x3x3,pad=-1", "pad", "-1"),
    ("stride zero in text", "fwd,x=16x64x56x56,w=64x64x3x3,stride=0", "stride", "from 1 to"),
    ("epilogue unknown", "fwd,x=16x64x56x56,w=64x64x3x3,epilogue=gelu", "epilogue", "gelu"),
    ("mode unknown in text", "fwd,x=16x64x56x56,w=64x64x3x3,mode=both", "mode", "conv or xcorr"),
    ("out type unknown", "fwd,x=16x64x56x56,w=64x64x3x3,out=f8", "out", "must be"),
    ("vectorised int8", "fwd,x=16x64x56x56,w=64x64x3x3,i8x4", "i8x4", "not supported"),
    ("vectorised int8 by 32", "fwd,x=16x64x56x56,w=64x64x3x3,int8x32", "int8x32", "not supported"),
    ("trailing comma", GOOD_TEXT + ",", "", "empty token"),
    ("control characters", "fwd,x=16x64x56x56,w=64x64x3x3,\x01\x02", "", "control characters"),
    ("a megabyte of text", "fwd," + "x=1," * 250000, "", "bytes"),
]

# Requests that are wrong around the problem: (name, method, fields, field, rule).
REQUESTS = [
    ("no problems", "BatchGet", {}, "problems", "required"),
    ("too many problems", "BatchGet", {"problems": [{"text": GOOD_TEXT}] * 10001}, "problems", "10"),
    ("spec empty", "BatchGet", {"problems": [{}]}, "problems[0]", "required"),
    ("second of two", "BatchGet", {"problems": [{"text": GOOD_TEXT}, {"text": GOOD_TEXT + ",groups=7"}]},
     "problems[1]", "divide"),
    ("on_miss unknown", "BatchGet", {"problems": [{"text": GOOD_TEXT}], "on_miss": 42}, "on_miss", "42"),
    ("evidence unknown", "BatchGet", {"problems": [{"text": GOOD_TEXT}], "min_evidence": 17}, "min_evidence", "17"),
    ("workspace negative", "BatchGet",
     {"problems": [{"text": GOOD_TEXT}], "constraints": {"max_workspace_bytes": -1}},
     "constraints.max_workspace_bytes", "0 to"),
    ("api unknown", "BatchGet", {"problems": [{"text": GOOD_TEXT}], "constraints": {"api": 9}}, "constraints.api", "9"),
    ("launch unknown", "BatchGet", {"problems": [{"text": GOOD_TEXT}], "constraints": {"launch": 9}},
     "constraints.launch", "9"),
    ("budget too small", "BatchGet",
     {"problems": [{"text": GOOD_TEXT}], "on_miss": "ON_MISS_TUNE", "options": {"time_budget": {"nanos": 1000}}},
     "options.time_budget", "10"),
    ("budget too large", "CreateTuningJob",
     {"problems": [{"text": GOOD_TEXT}], "options": {"time_budget": {"seconds": 360000}}}, "options.time_budget", "1"),
    ("budget malformed", "CreateTuningJob",
     {"problems": [{"text": GOOD_TEXT}], "options": {"time_budget": {"seconds": 1, "nanos": -5}}},
     "options.time_budget", ""),
    ("memory negative", "CreateTuningJob",
     {"problems": [{"text": GOOD_TEXT}], "options": {"memory_budget_bytes": -1}}, "options.memory_budget_bytes", ""),
    ("memory too large", "CreateTuningJob",
     {"problems": [{"text": GOOD_TEXT}], "options": {"memory_budget_bytes": 2**51}}, "options.memory_budget_bytes", ""),
    ("candidates too many", "CreateTuningJob",
     {"problems": [{"text": GOOD_TEXT}], "options": {"max_candidates": 100001}}, "options.max_candidates", "100"),
    ("candidates negative", "CreateTuningJob",
     {"problems": [{"text": GOOD_TEXT}], "options": {"max_candidates": -1}}, "options.max_candidates", ""),
    ("search unknown", "CreateTuningJob", {"problems": [{"text": GOOD_TEXT}], "options": {"search": 7}},
     "options.search", "7"),
    ("priority unknown", "CreateTuningJob", {"problems": [{"text": GOOD_TEXT}], "priority": 7}, "priority", "7"),
    ("request id too long", "CreateTuningJob", {"problems": [{"text": GOOD_TEXT}], "request_id": "r" * 129},
     "request_id", "128"),
    ("job name malformed", "GetTuningJob", {"name": "job-1"}, "name", "jobs/"),
    ("job name missing", "WatchTuningJob", {}, "name", ""),
    ("job to cancel malformed", "CancelTuningJob", {"name": "jobs/one"}, "name", "jobs/"),
    ("problem missing", "GetTuning", {}, "problem", "required"),
    ("page size negative", "ListTunings", {"page_size": -1}, "page_size", ""),
    ("page token foreign", "ListTunings", {"page_token": "not a token"}, "page_token", ""),
    ("jobs' page size", "ListTuningJobs", {"page_size": -1001}, "page_size", "1"),
    ("jobs' page token", "ListTuningJobs", {"page_token": "not a token"}, "page_token", ""),
    ("pins' page size", "ListPins", {"page_size": -1}, "page_size", "negative"),
    ("pins' page token", "ListPins", {"page_token": "not a token"}, "page_token", ""),
    ("environments' page token", "ListEnvironments", {"page_token": "bm8="}, "page_token", ""),
    ("delete of nothing", "DeleteTuning", {}, "problems", ""),
    ("pin without candidate", "Pin", {"problem": {"text": GOOD_TEXT}, "reason": "r"}, "candidate", "required"),
    ("pin of nonsense", "Pin", {"problem": {"text": GOOD_TEXT}, "candidate": "engine seven", "reason": "r"},
     "candidate", ""),
    ("pin without reason", "Pin", {"problem": {"text": GOOD_TEXT}, "candidate": "graph:eng1"}, "reason", "required"),
    ("pin's reason too long", "Pin",
     {"problem": {"text": GOOD_TEXT}, "candidate": "graph:eng1", "reason": "r" * 501}, "reason", "500"),
    ("pin's life too short", "Pin",
     {"problem": {"text": GOOD_TEXT}, "candidate": "graph:eng1", "reason": "r", "ttl": {"nanos": 5}}, "ttl", "1"),
    ("unpin without problem", "Unpin", {}, "problem", "required"),
]  # fmt: skip

# Command lines: (name, arguments, standard input, part of field, part of rule).
# "-" names standard input where a file is asked for.
COMMANDS = [
    ("text on the command line", ["get", GOOD_TEXT + ",groups=7"], b"", "groups", "divide"),
    ("doubled token", ["get", GOOD_TEXT + ",pad=3"], b"", "pad", "twice"),
    ("invalid UTF-8 in text", ["get", GOOD_TEXT.encode() + b",\xff\xfe"], b"", "", "utf-8"),
    ("no problem at all", ["get"], b"", "problem", ""),
    ("on-miss unknown", ["get", GOOD_TEXT, "--on-miss", "pray"], b"", "on-miss", "pray"),
    ("workspace no size", ["get", GOOD_TEXT, "--max-workspace", "much"], b"", "max-workspace", "much"),
    ("workspace negative", ["get", GOOD_TEXT, "--max-workspace=-5"], b"", "max-workspace", ""),
    ("workspace overflows", ["get", GOOD_TEXT, "--max-workspace", "99999999999TiB"], b"", "max-workspace", ""),
    ("api unknown", ["get", GOOD_TEXT, "--api", "cuda"], b"", "api", "cuda"),
    ("budget no duration", ["tune", GOOD_TEXT, "--budget", "soon"], b"", "budget", "soon"),
    ("budget too small", ["tune", GOOD_TEXT, "--budget", "1us"], b"", "budget", ""),
    ("pin of nonsense", ["pin", GOOD_TEXT, "engine seven", "--reason", "r"], b"", "candidate", ""),
    ("unknown command", ["gett", GOOD_TEXT], b"", "gett", ""),
    ("unknown flag", ["get", GOOD_TEXT, "--colour"], b"", "--colour", ""),
]

CSV_HEADER = b"op,n,c,h,w,k,r,s,pad_h,pad_w,stride_h,stride_w,groups,dtype,layout\n"
JSON_GOOD = '{"operation":"OPERATION_FWD","xDims":["1","3","8","8"],"wDims":["8","3","3","3"]%s}\n'

# Files: (name, file name, content, part of field, part of rule).
FILES = [
    ("empty csv", "a.csv", b"", "", ""),
    ("csv without needed column", "a.csv", b"n,c,h,w,k,r\n1,3,8,8,8,3\n", "column s", "required"),
    ("csv number", "a.csv", CSV_HEADER + b"fwd,1,3,eight,8,8,3,3,1,1,1,1,1,f16,nhwc\n", "column h", "eight"),
    ("csv zero", "a.csv", CSV_HEADER + b"fwd,1,3,0,8,8,3,3,1,1,1,1,1,f16,nhwc\n", "column h", "from 1 to"),
    ("csv empty cell", "a.csv", CSV_HEADER + b"fwd,1,3,,8,8,3,3,1,1,1,1,1,f16,nhwc\n", "column h", ""),
    ("csv groups", "a.csv", CSV_HEADER + b"fwd,1,8,8,8,8,3,3,1,1,1,1,3,f16,nhwc\n", "groups", "divide"),
    ("csv dtype", "a.csv", CSV_HEADER + b"fwd,1,3,8,8,8,3,3,1,1,1,1,1,f17,nhwc\n", "column dtype", "f17"),
    ("csv short row", "a.csv", CSV_HEADER + b"fwd,1,3,8\n", "a.csv:2", "column"),
    ("csv doubled column", "a.csv", b"n,n,c,h,w,k,r,s\n1,1,3,8,8,8,3,3\n", "n", ""),
    ("csv invalid utf-8", "a.csv", CSV_HEADER + b"fwd,1,3,8,8,8,3,3,1,1,1,1,1,\xff\xfe,nhwc\n", "", ""),
    ("json syntax", "a.jsonl", b"{\n", "a.jsonl:1", "json"),
    ("json field unknown", "a.jsonl", (JSON_GOOD % ',"colour":1').encode(), "colour", ""),
    ("json type", "a.jsonl", (JSON_GOOD % ',"groups":"many"').encode(), "groups", ""),
    ("json groups", "a.jsonl", (JSON_GOOD % ',"groups":2').encode(), "groups", "divide"),
    ("json enum", "a.jsonl", (JSON_GOOD % ',"dataType":"DATA_TYPE_F17"').encode(), "dataType", ""),
    ("text file", "a.txt", (GOOD_TEXT + "\n" + GOOD_TEXT + ",groups=7\n").encode(), "groups", "divide"),
    ("file that is not there", None, b"", "file", "No such file"),
]
