"""Arguments and results of model calls as the documentation of providers and libraries shows them.

Each case names its source. `shapes` has the conventions of what is expected.
"""

# fmt: off
from tests.forms.shapes import *
from tests.forms.shapes import _Base

CASES = []
add = make_add(CASES)

add("chat/plain", "https://platform.openai.com/docs/api-reference/chat/create",
    argument=[{"role": "system", "content": "You answer in one line."},
              {"role": "user", "content": "Which river runs through Prague?"}],
    argument_messages=[msg("system", "You answer in one line."), msg("user", "Which river runs through Prague?")],
    result=completion(ChatCompletionMessage(content="The Vltava."),
                      usage=CompletionUsage(completion_tokens=6, prompt_tokens=24, total_tokens=30,
                          completion_tokens_details=CompletionTokensDetails(reasoning_tokens=0, audio_tokens=0),
                          prompt_tokens_details=PromptTokensDetails(cached_tokens=16, audio_tokens=0))),
    answer=ans("The Vltava."), usage=use(24, 6, cached=16, reasoning=0), finish_reason="stop")

add("chat/multimodal-parts", "https://platform.openai.com/docs/guides/images-vision",
    argument=[{"role": "user", "content": [
        {"type": "text", "text": "What differs between these?"},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgoAAAANSUhEUg=="}},
        {"type": "input_audio", "input_audio": {"data": "UklGRiQAAABXQVZF", "format": "wav"}},
        {"type": "file", "file": {"filename": "spec.pdf", "file_data": "data:application/pdf;base64,JVBERi0xLjQK"}}]}],
    argument_messages=[msg("user", "What differs between these?", media=4)],
    result={"id": "chatcmpl-9", "object": "chat.completion", "created": 1755600002, "model": "gpt-4o",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "The second one is cropped.",
                                                 "refusal": None, "annotations": []},
                         "logprobs": None, "finish_reason": "length"}],
            "usage": {"prompt_tokens": 1104, "completion_tokens": 7, "total_tokens": 1111}},
    answer=ans("The second one is cropped."), usage=use(1104, 7), finish_reason="length")

add("chat/refusal", "https://platform.openai.com/docs/guides/structured-outputs#refusals",
    argument={"messages": [{"role": "user", "content": "Do the forbidden thing."}], "model": "gpt-4o",
              "temperature": 0.2},
    argument_messages=[msg("user", "Do the forbidden thing.")],
    result=completion(ChatCompletionMessage(content=None, refusal="I'm sorry, I can't help with that request."),
                      usage=CompletionUsage(completion_tokens=11, prompt_tokens=13, total_tokens=24)),
    answer=ans("I'm sorry, I can't help with that request."), usage=use(13, 11), finish_reason="stop",
    note="the refusal is what the model said: in text, or in a part of its own with that text")

add("chat/logprobs-annotations", "https://platform.openai.com/docs/guides/tools-web-search",
    argument=[{"role": "user", "content": "Latest stable kernel?", "name": "kim"}],
    argument_messages=[msg("user", "Latest stable kernel?")],
    result=completion(ChatCompletionMessage(content="It is 6.16 [1].", annotations=[
        Annotation(url_citation=AnnotationURLCitation(start_index=6, end_index=14, title="kernel.org",
                                                      url="https://kernel.org/"))]),
        logprobs=ChoiceLogprobs(content=[TokenLogprob(token="It", logprob=-0.01, bytes=[73, 116], top_logprobs=[]),
                                         TokenLogprob(token=" is", logprob=-0.2, bytes=[32, 105, 115],
                                                      top_logprobs=[])]),
        usage=CompletionUsage(completion_tokens=8, prompt_tokens=9, total_tokens=17)),
    answer=ans("It is 6.16 [1]."), usage=use(9, 8), finish_reason="stop")

add("chat/reasoning_content", "https://api-docs.deepseek.com/guides/reasoning_model",
    argument=[{"role": "user", "content": "9.11 or 9.8, which is greater?"}],
    argument_messages=[msg("user", "9.11 or 9.8, which is greater?")],
    result=completion(ChatCompletionMessage(content="9.8 is greater.",
                                            reasoning_content="Compare 9.80 with 9.11; 80 > 11."),
        model="deepseek-reasoner", usage=CompletionUsage(completion_tokens=60, prompt_tokens=17, total_tokens=77,
            completion_tokens_details=CompletionTokensDetails(reasoning_tokens=48), prompt_cache_hit_tokens=0,
            prompt_cache_miss_tokens=17)),
    answer=ans("9.8 is greater.", "Compare 9.80 with 9.11; 80 > 11."), usage=use(17, 60, reasoning=48),
    finish_reason="stop")

add("chat/extra_content-gemini-compat", "https://ai.google.dev/gemini-api/docs/thought-signatures#openai",
    argument=[{"role": "user", "content": "Check flight AA100."},
              {"role": "assistant", "tool_calls": [
                  {"id": "function-call-1", "type": "function",
                   "function": {"name": "check_flight", "arguments": "{\"flight\":\"AA100\"}"},
                   "extra_content": {"google": {"thought_signature": "Sig_A=="}}}]},
              {"role": "tool", "name": "check_flight", "tool_call_id": "function-call-1",
               "content": "{\"status\":\"delayed\",\"departure_time\":\"12 PM\"}"}],
    argument_messages=[msg("user", "Check flight AA100."),
        msg("assistant", tool_calls=[call("check_flight", {"flight": "AA100"}, "function-call-1")]),
        msg("tool", "{\"status\":\"delayed\",\"departure_time\":\"12 PM\"}", tool_result_of="function-call-1")],
    result={"choices": [{"finish_reason": "tool_calls", "index": 0, "message": {"role": "assistant", "tool_calls": [
                {"id": "function-call-2", "type": "function",
                 "function": {"name": "book_taxi", "arguments": "{\"time\":\"10 AM\"}"},
                 "extra_content": {"google": {"thought_signature": "Sig_B=="}}}]}}],
            "created": 1755600004, "id": "xyz", "model": "gemini-3-pro-preview", "object": "chat.completion",
            "usage": {"completion_tokens": 14, "prompt_tokens": 88, "total_tokens": 160}},
    answer=ans(tool_calls=[call("book_taxi", {"time": "10 AM"}, "function-call-2")]), usage=use(88, 14),
    finish_reason="tool_calls")

add("chat/legacy-function_call", "https://platform.openai.com/docs/api-reference/chat/object (deprecated function_call)",
    argument=[{"role": "user", "content": "2+2 with the tool"},
              {"role": "assistant", "content": None, "function_call": {"name": "add", "arguments": "{\"a\":2,\"b\":2}"}},
              {"role": "function", "name": "add", "content": "4"}],
    argument_messages=[msg("user", "2+2 with the tool"), msg("assistant", tool_calls=[call("add", {"a": 2, "b": 2})]),
                       msg("tool", "4", tool_result_of="add")],
    result={"choices": [{"index": 0, "finish_reason": "function_call", "message": {"role": "assistant",
            "content": None, "function_call": {"name": "mul", "arguments": "{\"a\":4,\"b\":3}"}}}],
            "usage": {"prompt_tokens": 44, "completion_tokens": 15, "total_tokens": 59}},
    answer=ans(tool_calls=[call("mul", {"a": 4, "b": 3})]), usage=use(44, 15), finish_reason="function_call")

add("chat/unknown-part-among-known", "no source: a part type no documentation names",
    argument=[{"role": "user", "content": [
        {"type": "text", "text": "Look at the mesh."},
        {"type": "hologram_v2", "hologram": {"mesh_id": "m-77", "vertices": [0.25, 1.5, -2]}, "hint": "rotate"},
        {"type": "text", "text": "Is it closed?"}]}],
    argument_messages=[msg("user", "Look at the mesh.\nIs it closed?")],
    result={"role": "assistant", "content": [{"type": "text", "text": "Yes, it is closed."},
                                             {"type": "spatial_mark", "at": [3, 4, 5], "label": "seam-1"}]},
    answer=ans("Yes, it is closed."), note="media may be 0 or 1; the leaves of the unknown part must survive")

add("chat/two-choices", "https://platform.openai.com/docs/api-reference/chat/object (n=2)",
    argument=[{"role": "user", "content": "Name a colour."}], argument_messages=[msg("user", "Name a colour.")],
    result={"id": "chatcmpl-n2", "object": "chat.completion", "created": 1, "model": "gpt-4o-mini", "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "Teal"}, "finish_reason": "stop"},
        {"index": 1, "message": {"role": "assistant", "content": "Ochre"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 4, "total_tokens": 15}},
    answer=ans("Teal"), usage=use(11, 4), finish_reason="stop",
    note="the first choice is the answer; 'Ochre' must not be lost")

def _s_text():
    yield chunk(ChoiceDelta(role="assistant", content=""))
    for piece in ["Blue", " whales", " sing", "."]:
        yield chunk(ChoiceDelta(content=piece))
    yield chunk(ChoiceDelta(), finish="stop")
    yield chunk(choices=[], usage=CompletionUsage(completion_tokens=5, prompt_tokens=12, total_tokens=17,
                prompt_tokens_details=PromptTokensDetails(cached_tokens=4)))
add("stream/openai-text-with-usage", "https://platform.openai.com/docs/api-reference/chat-streaming",
    argument=[{"role": "user", "content": "A fact on whales"}], argument_messages=[msg("user", "A fact on whales")],
    make_stream=lambda: _s_text(), answer=ans("Blue whales sing."), usage=use(12, 5, cached=4), finish_reason="stop")

def _s_tools():
    def d(i, **k):
        return chunk(ChoiceDelta(tool_calls=[ChoiceDeltaToolCall(index=i, **k)]))
    F = ChoiceDeltaToolCallFunction
    yield chunk(ChoiceDelta(role="assistant", content=None))
    yield d(0, id="call_s0", type="function", function=F(name="search", arguments=""))
    yield d(0, function=F(arguments="{\"q\":"))
    yield d(0, function=F(arguments=" \"tide\"}"))
    yield d(1, id="call_s1", type="function", function=F(name="search", arguments=""))
    yield d(1, function=F(arguments="{\"q\": \"moon\", \"k\": 3}"))
    yield chunk(ChoiceDelta(), finish="tool_calls")
add("stream/openai-tool-call-deltas", "https://platform.openai.com/docs/guides/function-calling#streaming",
    argument="Why are there tides?", argument_messages=[msg("user", "Why are there tides?")],
    make_stream=lambda: _s_tools(),
    answer=ans(tool_calls=[call("search", {"q": "tide"}, "call_s0"), call("search", {"q": "moon", "k": 3}, "call_s1")]),
    finish_reason="tool_calls")

add("chat/list-of-chunks", "a stream kept as a list", argument=[{"role": "user", "content": "count"}], argument_messages=[msg("user", "count")],
    result=[chunk(ChoiceDelta(role="assistant", content="")), chunk(ChoiceDelta(content="1 2")), chunk(ChoiceDelta(content=" 3")), chunk(ChoiceDelta(), finish="stop"),
            chunk(choices=[], usage=CompletionUsage(completion_tokens=6, prompt_tokens=8, total_tokens=14))],
    answer=ans("1 2 3"), usage=use(8, 6), finish_reason="stop")

add("chat/art-messages-and-choices", "https://github.com/OpenPipe/ART (Trajectory.messages_and_choices: dicts and Choice objects)",
    argument=[{"role": "system", "content": "2048."}, {"role": "user", "content": "board 1"},
              Choice(finish_reason="stop", index=0, message=ChatCompletionMessage(content="<move>left</move>"), logprobs=ChoiceLogprobs(content=[TokenLogprob(token="<move>", logprob=-0.75, top_logprobs=[])])),
              {"role": "user", "content": "board 2"}],
    argument_messages=[msg("system", "2048."), msg("user", "board 1"), msg("assistant", "<move>left</move>"), msg("user", "board 2")],
    result=Choice(finish_reason="stop", index=0, message=ChatCompletionMessage(content="<move>up</move>")),
    answer=ans("<move>up</move>"), finish_reason="stop")

add("completions/vllm-with-token-ids", "https://docs.vllm.ai/en/latest/serving/openai_compatible_server/ (return_token_ids)",
    argument="def fib(n):", argument_messages=[msg("user", "def fib(n):")],
    result={"id": "cmpl-2", "object": "text_completion", "created": 1755600050, "model": "Qwen/Qwen2.5-Coder-7B",
            "choices": [{"index": 0, "text": "\n    return n if n < 2 else fib(n-1) + fib(n-2)",
                         "logprobs": {"tokens": ["\n", "return"], "token_logprobs": [-0.1, -0.02],
                                      "top_logprobs": [None, None], "text_offset": [0, 1]},
                         "finish_reason": "stop", "stop_reason": "\n\n", "prompt_logprobs": None,
                         "token_ids": [198, 262, 470, 308], "prompt_token_ids": [750, 15273, 1445, 1648]}],
            "usage": {"prompt_tokens": 4, "total_tokens": 24, "completion_tokens": 20,
                      "prompt_tokens_details": None}, "kv_transfer_params": None},
    answer=ans("\n    return n if n < 2 else fib(n-1) + fib(n-2)"), usage=use(4, 20), finish_reason="stop")

def _s_compl():
    for i, t in enumerate([" four", " five", " six"]):
        yield {"id": "cmpl-9", "object": "text_completion", "created": 8, "model": "m",
               "choices": [{"index": 0, "text": t, "logprobs": None, "finish_reason": "length" if i == 2 else None}]}
    yield {"id": "cmpl-9", "object": "text_completion", "created": 8, "model": "m", "choices": [],
           "usage": {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}}
add("stream/completions-dicts", "https://platform.openai.com/docs/api-reference/completions (stream)",
    argument="one two three", argument_messages=[msg("user", "one two three")], make_stream=lambda: _s_compl(),
    answer=ans(" four five six"), usage=use(5, 3), finish_reason="length")

add("responses/function_call-and-output", "https://platform.openai.com/docs/guides/function-calling?api-mode=responses",
    argument=[{"role": "user", "content": "What is my horoscope? I am an Aquarius."},
              {"type": "function_call", "id": "fc_1", "call_id": "call_h1", "name": "get_horoscope",
               "arguments": "{\"sign\":\"Aquarius\"}", "status": "completed"},
              {"type": "function_call_output", "call_id": "call_h1", "output": "You will befriend an otter."}],
    argument_messages=[msg("user", "What is my horoscope? I am an Aquarius."),
        msg("assistant", tool_calls=[call("get_horoscope", {"sign": "Aquarius"}, "call_h1")]),
        msg("tool", "You will befriend an otter.", tool_result_of="call_h1")],
    result=Response(id="resp_2", created_at=1755600101.0, model="gpt-5", output=[
        ResponseReasoningItem(id="rs_1", summary=[Summary(text="**Choosing a tool** Need the date.")],
                              encrypted_content="gAAAAABo-enc1"),
        ResponseFunctionToolCall(id="fc_2", call_id="call_h2", name="get_date", arguments="{}", status="completed")],
        usage=ResponseUsage(input_tokens=90, input_tokens_details=InputTokensDetails(cached_tokens=0),
                            output_tokens=75, output_tokens_details=OutputTokensDetails(reasoning_tokens=64),
                            total_tokens=165)),
    answer=ans(None, "**Choosing a tool** Need the date.", [call("get_date", {}, "call_h2")]),
    usage=use(90, 75, cached=0, reasoning=64), finish_reason="completed", note="finish_reason None is as good")

add("responses/input-parts-and-instructions", "https://platform.openai.com/docs/api-reference/responses/create",
    argument={"model": "gpt-4.1", "instructions": "Be terse.", "input": [
        {"type": "message", "role": "user", "content": [
            {"type": "input_text", "text": "what is in this image?"},
            {"type": "input_image", "image_url": "https://example.org/boardwalk.jpg", "detail": "auto"},
            {"type": "input_file", "file_id": "file-6F2ksmvXxt4VdoqmHRw6kL"}]}]},
    argument_messages=[msg("system", "Be terse."), msg("user", "what is in this image?", media=2)],
    result={"id": "resp_3", "object": "response", "created_at": 1755600102, "status": "incomplete",
            "incomplete_details": {"reason": "max_output_tokens"}, "model": "gpt-4.1", "output": [
                {"type": "message", "id": "msg_3", "status": "incomplete", "role": "assistant", "content": [
                    {"type": "output_text", "text": "A wooden path across a", "annotations": []}]}],
            "usage": {"input_tokens": 328, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 6,
                      "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 334}},
    answer=ans("A wooden path across a"), usage=use(328, 6, cached=0, reasoning=0),
    finish_reason="max_output_tokens", note="'incomplete' is as good")

add("responses/file_search_call", "https://platform.openai.com/docs/guides/tools-file-search",
    argument=[{"role": "user", "content": [{"type": "input_text", "text": "What is deep research?"}]}],
    argument_messages=[msg("user", "What is deep research?")],
    result={"id": "resp_5", "object": "response", "status": "completed", "model": "gpt-4o-mini", "output": [
        {"type": "file_search_call", "id": "fs_67c", "status": "completed", "queries": ["deep research", "what is it"],
         "results": [{"file_id": "file-2d", "filename": "deep_research_blog.pdf", "score": 0.957,
                      "text": "Deep research is an agent.", "attributes": {"region": "eu", "year": 2025}}]},
        {"id": "msg_5", "type": "message", "role": "assistant", "status": "completed", "content": [
            {"type": "output_text", "text": "An agent that does research.", "annotations": [
                {"type": "file_citation", "index": 27, "file_id": "file-2d", "filename": "deep_research_blog.pdf"}]}]}],
        "usage": {"input_tokens": 1800, "output_tokens": 30, "total_tokens": 1830}},
    answer=ans("An agent that does research.", None, [call("file_search", {"queries": ["deep research", "what is it"]},
        "fs_67c", names=["file_search", "file_search_call"], optional=True)]),
    usage=use(1800, 30), finish_reason="completed")

add("responses/computer_call-and-output", "https://platform.openai.com/docs/guides/tools-computer-use",
    argument=[{"role": "user", "content": "Check the latest news on bing.com."},
              {"type": "computer_call", "id": "cu_1", "call_id": "call_cu1", "status": "completed",
               "action": {"type": "click", "button": "left", "x": 156, "y": 50}, "pending_safety_checks": []},
              {"type": "computer_call_output", "call_id": "call_cu1", "acknowledged_safety_checks": [],
               "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,iVBORw0KGgo="}}],
    argument_messages=[msg("user", "Check the latest news on bing.com."),
        msg("assistant", tool_calls=[call("computer", {"type": "click", "button": "left", "x": 156, "y": 50},
                                          "call_cu1", names=["computer", "computer_call", "computer_use_preview", "click"])]),
        msg("tool", None, tool_result_of="call_cu1", media=1)],
    result={"id": "resp_6", "object": "response", "status": "completed", "model": "computer-use-preview", "output": [
        {"type": "reasoning", "id": "rs_6", "summary": [{"type": "summary_text", "text": "Typing the query."}]},
        {"type": "computer_call", "id": "cu_2", "call_id": "call_cu2", "status": "completed",
         "action": {"type": "type", "text": "news"},
         "pending_safety_checks": [{"id": "sc_1", "code": "malicious_instructions", "message": "Please confirm."}]}],
        "usage": {"input_tokens": 900, "output_tokens": 40, "output_tokens_details": {"reasoning_tokens": 10},
                  "total_tokens": 940}},
    answer=ans(None, "Typing the query.", [call("computer", {"type": "type", "text": "news"}, "call_cu2",
               names=["computer", "computer_call", "computer_use_preview", "type"])]),
    usage=use(900, 40, reasoning=10), finish_reason="completed")

add("responses/code_interpreter_call", "https://platform.openai.com/docs/guides/tools-code-interpreter",
    argument="Solve 3x + 11 = 14.", argument_messages=[msg("user", "Solve 3x + 11 = 14.")],
    result=Response(id="resp_8", created_at=1755600107.0, model="gpt-4.1", output=[
        ResponseCodeInterpreterToolCall(id="ci_1", code="(14-11)/3", container_id="cntr_1",
                                        outputs=[OutputLogs(logs="1.0")]),
        ResponseOutputMessage(id="msg_8", content=[ResponseOutputText(text="x = 1")])],
        usage=ResponseUsage(input_tokens=200, input_tokens_details=InputTokensDetails(cached_tokens=128),
                            output_tokens=33, output_tokens_details=OutputTokensDetails(reasoning_tokens=0),
                            total_tokens=233)),
    answer=ans("x = 1", None, [call("code_interpreter", {"code": "(14-11)/3", "container_id": "cntr_1"}, "ci_1",
                                    names=["code_interpreter", "code_interpreter_call"], optional=True)]),
    usage=use(200, 33, cached=128, reasoning=0), finish_reason="completed")

add("responses/local_shell_call", "https://platform.openai.com/docs/guides/tools-local-shell",
    argument=[{"role": "user", "content": "list files"},
              {"type": "local_shell_call", "id": "lsh_1", "call_id": "call_sh1", "status": "completed",
               "action": {"type": "exec", "command": ["ls", "-la"], "env": {"LANG": "C"}, "timeout_ms": 1000,
                          "working_directory": "/repo"}},
              {"type": "local_shell_call_output", "id": "call_sh1", "output": "total 0\n", "status": "completed"}],
    argument_messages=[msg("user", "list files"), msg("assistant", tool_calls=[
        call("local_shell", {"type": "exec", "command": ["ls", "-la"], "env": {"LANG": "C"}, "timeout_ms": 1000,
             "working_directory": "/repo"}, "call_sh1", names=["local_shell", "local_shell_call", "exec"])]),
        msg("tool", "total 0\n", tool_result_of="call_sh1")],
    result={"id": "resp_9", "status": "completed", "model": "codex-mini-latest", "output": [
        {"type": "local_shell_call", "id": "lsh_2", "call_id": "call_sh2", "status": "completed",
         "action": {"type": "exec", "command": ["git", "status"], "env": {}}}],
        "usage": {"input_tokens": 77, "output_tokens": 12, "total_tokens": 89}},
    answer=ans(None, None, [call("local_shell", {"type": "exec", "command": ["git", "status"], "env": {}}, "call_sh2",
                                 names=["local_shell", "local_shell_call", "exec"])]),
    usage=use(77, 12), finish_reason="completed")

add("responses/apply_patch_call-and-output", "openai SDK: response_apply_patch_tool_call.py",
    argument=[{"role": "user", "content": "rename fib"},
              {"type": "apply_patch_call", "id": "apc_1", "call_id": "call_p1", "status": "completed",
               "operation": {"type": "update_file", "path": "lib/fib.py", "diff": "@@\n-def fib(n):\n+def fibo(n):\n"}},
              {"type": "apply_patch_call_output", "call_id": "call_p1", "status": "failed",
               "output": "Error: File not found at path 'lib/fib.py'"}],
    argument_messages=[msg("user", "rename fib"), msg("assistant", tool_calls=[
        call("apply_patch", {"type": "update_file", "path": "lib/fib.py", "diff": "@@\n-def fib(n):\n+def fibo(n):\n"},
             "call_p1", names=["apply_patch", "apply_patch_call", "update_file"])]),
        msg("tool", "Error: File not found at path 'lib/fib.py'", tool_result_of="call_p1")],
    result={"id": "resp_11", "status": "completed", "model": "gpt-5.1", "output": [
        {"type": "apply_patch_call", "id": "apc_2", "call_id": "call_p2", "status": "completed",
         "operation": {"type": "delete_file", "path": "fib_old.py"}}],
        "usage": {"input_tokens": 210, "output_tokens": 25, "total_tokens": 235}},
    answer=ans(None, None, [call("apply_patch", {"type": "delete_file", "path": "fib_old.py"}, "call_p2",
                                 names=["apply_patch", "apply_patch_call", "delete_file"])]),
    usage=use(210, 25), finish_reason="completed")

add("responses/mcp_call-and-list_tools", "https://platform.openai.com/docs/guides/tools-remote-mcp",
    argument="Roll 2d4+1", argument_messages=[msg("user", "Roll 2d4+1")],
    result=Response(id="resp_12", created_at=1755600111.0, model="gpt-5", output=[
        {"id": "mcpl_1", "type": "mcp_list_tools", "server_label": "dmcp", "error": None, "tools": [
            {"name": "roll", "description": "Roll dice", "annotations": None,
             "input_schema": {"type": "object", "properties": {"diceRollExpression": {"type": "string"}}}}]},
        McpCall(id="mcp_1", arguments="{\"diceRollExpression\":\"2d4 + 1\"}", name="roll", server_label="dmcp",
                output="4", status="completed"),
        ResponseOutputMessage(id="msg_12", content=[ResponseOutputText(text="You rolled 4.")])],
        usage=ResponseUsage(input_tokens=387, input_tokens_details=InputTokensDetails(cached_tokens=0),
                            output_tokens=21, output_tokens_details=OutputTokensDetails(reasoning_tokens=0),
                            total_tokens=408)),
    answer=ans("You rolled 4.", None, [call("roll", {"diceRollExpression": "2d4 + 1"}, "mcp_1",
                                            names=["roll", "dmcp.roll", "mcp_call"], optional=True)]),
    usage=use(387, 21, cached=0, reasoning=0), finish_reason="completed")

add("responses/custom_tool_call", "https://platform.openai.com/docs/guides/function-calling#custom-tools",
    argument=[{"role": "user", "content": "Use code_exec to print hello."},
              {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_cc1", "name": "code_exec",
               "input": "print(\"hello\")", "status": "completed"},
              {"type": "custom_tool_call_output", "call_id": "call_cc1", "output": "hello\n"}],
    argument_messages=[msg("user", "Use code_exec to print hello."),
        msg("assistant", tool_calls=[call("code_exec", "print(\"hello\")", "call_cc1")]),
        msg("tool", "hello\n", tool_result_of="call_cc1")],
    result=Response(id="resp_14", created_at=1755600113.0, model="gpt-5", output=[
        ResponseCustomToolCall(id="ctc_2", call_id="call_cc2", name="sql", input="SELECT 1;", status="completed")],
        usage=ResponseUsage(input_tokens=60, input_tokens_details=InputTokensDetails(cached_tokens=0),
                            output_tokens=9, output_tokens_details=OutputTokensDetails(reasoning_tokens=0),
                            total_tokens=69)),
    answer=ans(None, None, [call("sql", "SELECT 1;", "call_cc2")]), usage=use(60, 9, cached=0, reasoning=0),
    finish_reason="completed")

add("responses/item_reference-compaction", "https://platform.openai.com/docs/guides/compaction; item_reference in responses/create",
    argument=[{"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAAABpZ-compact"},
              {"type": "item_reference", "id": "msg_0aa1"},
              {"type": "reasoning", "id": "rs_0aa2", "summary": [], "encrypted_content": "gAAAAABpZ-reason"},
              {"role": "assistant", "content": [{"type": "output_text", "text": "Done so far.", "annotations": []}]},
              {"role": "user", "content": "Go on."}],
    argument_messages=[msg("assistant", "Done so far."), msg("user", "Go on.")],
    result={"id": "resp_15", "object": "response.compaction", "created_at": 1755600114, "output": [
        {"type": "message", "id": "msg_15", "role": "user", "status": "completed",
         "content": [{"type": "input_text", "text": "Go on."}]},
        {"type": "compaction", "id": "cmp_2", "encrypted_content": "gAAAAABpZ-compact2"}],
        "usage": {"input_tokens": 139, "output_tokens": 438, "total_tokens": 577,
                  "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 64}}},
    answer=ans(), usage=use(139, 438, cached=0, reasoning=64),
    note="compaction, item_reference and empty reasoning have no text: they may be parts of any message, or messages "
         "of their own without text. The result holds a user's message and a compaction: no answer text of the "
         "model's (a reader that shows 'Go on.' as text is forgiven)")

def _s_resp():
    import types
    N = types.SimpleNamespace
    R = {"id": "resp_s", "object": "response", "created_at": 9, "model": "gpt-4.1"}
    yield N(type="response.created", sequence_number=0, response=N(**R, status="in_progress", output=[], usage=None))
    yield N(type="response.output_item.added", sequence_number=1, output_index=0,
            item=N(id="msg_s", type="message", role="assistant", status="in_progress", content=[]))
    yield N(type="response.content_part.added", sequence_number=2, item_id="msg_s", output_index=0, content_index=0,
            part=N(type="output_text", text="", annotations=[]))
    yield N(type="response.output_text.delta", sequence_number=3, item_id="msg_s", output_index=0, content_index=0,
            delta="Hi ", logprobs=[])
    yield N(type="response.output_text.delta", sequence_number=4, item_id="msg_s", output_index=0, content_index=0,
            delta="there!", logprobs=[])
    yield N(type="response.output_text.done", sequence_number=5, item_id="msg_s", output_index=0, content_index=0,
            text="Hi there!", logprobs=[])
    item = N(id="msg_s", type="message", role="assistant", status="completed",
             content=[N(type="output_text", text="Hi there!", annotations=[])])
    yield N(type="response.output_item.done", sequence_number=6, output_index=0, item=item)
    yield N(type="response.completed", sequence_number=7, response=N(**R, status="completed", output=[item], usage=N(
        input_tokens=37, output_tokens=3, total_tokens=40, input_tokens_details=N(cached_tokens=0),
        output_tokens_details=N(reasoning_tokens=0))))
add("stream/responses-events-text", "https://platform.openai.com/docs/api-reference/responses-streaming",
    argument=[{"role": "user", "content": "Hello!"}], argument_messages=[msg("user", "Hello!")],
    make_stream=lambda: _s_resp(), answer=ans("Hi there!"), usage=use(37, 3, cached=0, reasoning=0),
    finish_reason="completed", note="the text comes in deltas, in done events and in the end: once only")

def _s_resp_fn():
    base = {"id": "resp_f", "object": "response", "model": "gpt-4.1"}
    fc = {"type": "function_call", "id": "fc_s", "call_id": "call_sf", "name": "get_weather"}
    yield {"type": "response.created", "response": {**base, "status": "in_progress", "output": []}}
    yield {"type": "response.output_item.added", "output_index": 0, "item": {**fc, "arguments": "", "status": "in_progress"}}
    for d in ["{\"", "location", "\":\"", "Paris", "\"}"]:
        yield {"type": "response.function_call_arguments.delta", "item_id": "fc_s", "output_index": 0, "delta": d}
    full = "{\"location\":\"Paris\"}"
    yield {"type": "response.function_call_arguments.done", "item_id": "fc_s", "output_index": 0, "arguments": full}
    yield {"type": "response.output_item.done", "output_index": 0, "item": {**fc, "arguments": full, "status": "completed"}}
    yield {"type": "response.completed", "response": {**base, "status": "completed",
           "output": [{**fc, "arguments": full, "status": "completed"}],
           "usage": {"input_tokens": 52, "output_tokens": 15, "total_tokens": 67}}}
add("stream/responses-events-function_call", "https://platform.openai.com/docs/guides/function-calling?api-mode=responses#streaming",
    argument="Weather in Paris?", argument_messages=[msg("user", "Weather in Paris?")],
    make_stream=lambda: _s_resp_fn(), answer=ans(None, None, [call("get_weather", {"location": "Paris"}, "call_sf")]),
    usage=use(52, 15), finish_reason="completed")

add("responses/tool_search-and-list-output", "openai SDK: response_tool_search_call.py, response_function_call_output_item_list.py",
    argument=[{"role": "user", "content": "Crop it."},
              {"type": "tool_search_call", "id": "tsc_1", "call_id": None, "execution": "server", "status": "completed", "arguments": {"paths": ["image"]}},
              {"type": "tool_search_output", "id": "tso_1", "call_id": None, "execution": "server", "status": "completed", "tools": [{"type": "function", "name": "crop", "parameters": {"type": "object"}, "strict": True}]},
              {"type": "function_call", "call_id": "call_cr", "name": "crop", "namespace": "image", "arguments": "{\"w\":10}"},
              {"type": "function_call_output", "call_id": "call_cr", "output": [{"type": "input_text", "text": "cropped"}, {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo=", "detail": "high"}]}],
    argument_messages=[msg("user", "Crop it."), msg("assistant", None, None, [
        call("tool_search", {"paths": ["image"]}, "tsc_1", names=["tool_search", "tool_search_call"], optional=True),
        call("crop", {"w": 10}, "call_cr", names=["crop", "image.crop"])]), msg("tool", "cropped", tool_result_of="call_cr", media=1)],
    result={"id": "resp_20", "status": "completed", "model": "gpt-5.4", "output": [{"type": "message", "id": "msg_20", "role": "assistant", "status": "completed", "content": [{"type": "output_text", "text": "Done.", "annotations": []}]}],
            "usage": {"input_tokens": 71, "output_tokens": 3, "total_tokens": 74}},
    answer=ans("Done."), usage=use(71, 3), finish_reason="completed", note="where the hosted tool_search items stand is open")

add("responses/program-and-output", "openai SDK: response_output_item.py Program, ProgramOutput",
    argument="Sum the orders.", argument_messages=[msg("user", "Sum the orders.")],
    result={"id": "resp_21", "status": "completed", "model": "gpt-5.4", "output": [
        {"type": "reasoning", "id": "rs_21", "summary": [], "content": [{"type": "reasoning_text", "text": "A program will do."}]},
        {"type": "program", "id": "pr_1", "call_id": "call_pr", "code": "sum([3,4])", "fingerprint": "fp-0c"},
        {"type": "program_output", "id": "po_1", "call_id": "call_pr", "result": "7", "status": "completed"},
        {"type": "message", "id": "msg_21", "role": "assistant", "status": "completed", "content": [{"type": "output_text", "text": "Seven in all.", "annotations": []}]}],
        "usage": {"input_tokens": 64, "output_tokens": 31, "total_tokens": 95, "output_tokens_details": {"reasoning_tokens": 9}}},
    answer=ans("Seven in all.", "A program will do.", [call("program", {"code": "sum([3,4])", "fingerprint": "fp-0c"}, "call_pr", optional=True)]),
    usage=use(64, 31, reasoning=9), finish_reason="completed")

add("anthropic/thinking-tool_use", "https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking",
    argument=[{"role": "user", "content": "Weather in Kyiv?"},
              {"role": "assistant", "content": [
                  {"type": "thinking", "thinking": "I need the weather tool.", "signature": "EqQBCgIYAhIM1gbcDa9GJwZA2b3h"},
                  {"type": "redacted_thinking", "data": "EmwKAhgBEgy3va3pzix"},
                  {"type": "text", "text": "Let me look."},
                  {"type": "tool_use", "id": "toolu_01", "name": "get_weather", "input": {"location": "Kyiv"}}]},
              {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_01", "content": "21 C"}]}],
    argument_messages=[msg("user", "Weather in Kyiv?"),
        msg("assistant", "Let me look.", "I need the weather tool.", [call("get_weather", {"location": "Kyiv"}, "toolu_01")]),
        msg("user", "21 C", tool_result_of="toolu_01")],
    result=AMessage(id="msg_01B", model="claude-opus-4", stop_reason="tool_use", content=[
        AThinkingBlock(thinking="Now the forecast.", signature="EuYBCkQ"),
        ARedactedThinkingBlock(data="EvAFCoYBGAIiQL7"),
        AToolUseBlock(id="toolu_02", name="get_forecast", input={"location": "Kyiv", "days": 3})],
        usage=AUsage(input_tokens=300, output_tokens=88, cache_creation_input_tokens=50, cache_read_input_tokens=1000)),
    answer=ans(None, "Now the forecast.", [call("get_forecast", {"location": "Kyiv", "days": 3}, "toolu_02")]),
    usage=use(300, 88, cached=1000, input_accept=[300, 1300, 1350]), finish_reason="tool_use")

add("anthropic/tool_result-list-image", "https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/implement-tool-use",
    argument=[{"role": "user", "content": [{"type": "text", "text": "Zoom in."}]},
              {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_z1", "name": "zoom", "input": {"f": 2}},
                                                {"type": "tool_use", "id": "toolu_z2", "name": "stat", "input": {}}]},
              {"role": "user", "content": [
                  {"type": "tool_result", "tool_use_id": "toolu_z1", "content": [
                      {"type": "text", "text": "zoomed"},
                      {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "/9j/4AAQSkZJRg"}}]},
                  {"type": "tool_result", "tool_use_id": "toolu_z2", "is_error": True, "content": "ConnectionError: down"},
                  {"type": "text", "text": "Carry on anyway."}]}],
    argument_messages=[msg("user", "Zoom in."),
        msg("assistant", tool_calls=[call("zoom", {"f": 2}, "toolu_z1"), call("stat", {}, "toolu_z2")]),
        msg("user", "zoomed\nConnectionError: down\nCarry on anyway.", tool_result_of=["toolu_z1", "toolu_z2"], media=1)],
    result={"id": "msg_01C", "type": "message", "role": "assistant", "model": "claude-3-5-haiku-latest",
            "content": [{"type": "text", "text": "I see a kite."}], "stop_reason": "max_tokens", "stop_sequence": None,
            "usage": {"input_tokens": 410, "output_tokens": 16}},
    answer=ans("I see a kite."), usage=use(410, 16), finish_reason="max_tokens")

add("anthropic/server-web-search", "https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/web-search-tool",
    argument=[{"role": "user", "content": "When was Claude Shannon born?"}],
    argument_messages=[msg("user", "When was Claude Shannon born?")],
    result=AMessage(id="msg_01E", model="claude-opus-4-1", stop_reason="end_turn", content=[
        ATextBlock(text="I'll search."),
        AServerToolUseBlock(id="srvtoolu_01", name="web_search", input={"query": "claude shannon birth date"}),
        AWebSearchToolResultBlock(tool_use_id="srvtoolu_01", content=[AWebSearchResultBlock(
            url="https://en.wikipedia.org/wiki/Claude_Shannon", title="Claude Shannon", encrypted_content="EqgfCioI", page_age="April 30, 2025")]),
        ATextBlock(text="He was born on April 30, 1916.", citations=[ACitation(
            cited_text="Claude Elwood Shannon (April 30, 1916", encrypted_index="Eo8BCio", title="Claude Shannon",
            url="https://en.wikipedia.org/wiki/Claude_Shannon")])],
        usage=AUsage(input_tokens=105, output_tokens=230, cache_read_input_tokens=7123, cache_creation_input_tokens=7345,
                     server_tool_use={"web_search_requests": 1})),
    answer=ans("I'll search.\nHe was born on April 30, 1916.", None,
               [call("web_search", {"query": "claude shannon birth date"}, "srvtoolu_01", optional=True)]),
    usage=use(105, 230, cached=7123, input_accept=[105, 7228, 14573]), finish_reason="end_turn")

def _s_anth():
    yield ARawMessageStartEvent(message=AMessage(id="msg_s", model="claude-sonnet-4", content=[],
                                usage=AUsage(input_tokens=25, output_tokens=1)))
    yield ARawContentBlockStartEvent(index=0, content_block=AThinkingBlock(thinking="", signature=""))
    for t in ["Let me ", "solve."]:
        yield ARawContentBlockDeltaEvent(index=0, delta=AThinkingDelta(thinking=t))
    yield ARawContentBlockDeltaEvent(index=0, delta=ASignatureDelta(signature="EqQBSIG"))
    yield ARawContentBlockStopEvent(index=0)
    yield ARawContentBlockStartEvent(index=1, content_block=ATextBlock(text=""))
    for t in ["27 * 453", " = 12231"]:
        yield ARawContentBlockDeltaEvent(index=1, delta=ATextDelta(text=t))
    yield ARawContentBlockStopEvent(index=1)
    yield ARawMessageDeltaEvent(delta=ADelta(stop_reason="end_turn"), usage=AMessageDeltaUsage(output_tokens=40))
    yield ARawMessageStopEvent()
add("stream/anthropic-thinking-text", "https://docs.anthropic.com/en/docs/build-with-claude/streaming",
    argument=[{"role": "user", "content": "27 * 453?"}], argument_messages=[msg("user", "27 * 453?")],
    make_stream=lambda: _s_anth(), answer=ans("27 * 453 = 12231", "Let me solve."), usage=use(25, 40),
    finish_reason="end_turn")

add("anthropic/code-execution-unknown", "https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/code-execution-tool",
    argument=[{"role": "user", "content": [{"type": "text", "text": "Mean of 1,2?"},
                                           {"type": "container_upload", "file_id": "file_011"}]}],
    argument_messages=[msg("user", "Mean of 1,2?")],
    result={"id": "msg_01F", "type": "message", "role": "assistant", "model": "claude-opus-4", "content": [
        {"type": "server_tool_use", "id": "srvtoolu_c", "name": "bash_code_execution", "input": {"command": "python -c 'print(1.5)'"}},
        {"type": "bash_code_execution_tool_result", "tool_use_id": "srvtoolu_c", "content": {
            "type": "bash_code_execution_result", "stdout": "1.5\n", "stderr": "", "return_code": 0, "content": []}},
        {"type": "text", "text": "1.5"}], "stop_reason": "end_turn", "container": {"id": "container_9", "expires_at": "2025-09-01T00:00:00Z"},
        "usage": {"input_tokens": 105, "output_tokens": 50, "server_tool_use": {"code_execution_requests": 1}}},
    answer=ans("1.5", None, [call("bash_code_execution", {"command": "python -c 'print(1.5)'"}, "srvtoolu_c", optional=True)]),
    usage=use(105, 50), finish_reason="end_turn", note="container_upload: media 0 or 1")

add("gemini/rest-dicts", "https://ai.google.dev/api/generate-content",
    argument={"system_instruction": {"parts": [{"text": "You are a cat."}]},
              "contents": [{"role": "user", "parts": [{"text": "Hello there"}]},
                           {"role": "model", "parts": [{"text": "Meow."}]},
                           {"role": "user", "parts": [{"text": "Who is this?"},
                               {"inlineData": {"mimeType": "image/jpeg", "data": "/9j/4AAQSkZJRgABAQ"}}]}],
              "generationConfig": {"temperature": 0.4}},
    argument_messages=[msg("system", "You are a cat."), msg("user", "Hello there"), msg("assistant", "Meow."),
                       msg("user", "Who is this?", media=1)],
    result={"candidates": [{"content": {"parts": [{"text": "A rival."}], "role": "model"}, "finishReason": "STOP",
            "index": 0, "safetyRatings": [{"category": "HARM_CATEGORY_HARASSMENT", "probability": "NEGLIGIBLE"}]}],
            "usageMetadata": {"promptTokenCount": 270, "candidatesTokenCount": 3, "totalTokenCount": 273,
                              "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 12}, {"modality": "IMAGE", "tokenCount": 258}]},
            "modelVersion": "gemini-2.5-flash", "responseId": "mAitaLmkHPPlz7IPvtfUqQ4"},
    answer=ans("A rival."), usage=use(270, 3), finish_reason="STOP")

add("gemini/sdk-objects", "google-genai SDK types.py",
    argument=[GContent(role="user", parts=[GPart(text="Play a song."), GPart(inline_data=GBlob(data=b"\x89PNG", mime_type="image/png"))]),
              GContent(role="model", parts=[GPart(function_call=GFunctionCall(id="fc-3", name="play", args={"title": "So What"}))]),
              GContent(role="user", parts=[GPart(function_response=GFunctionResponse(id="fc-3", name="play", response={"output": "playing"}))])],
    argument_messages=[msg("user", "Play a song.", media=1), msg("assistant", tool_calls=[call("play", {"title": "So What"}, "fc-3")]),
                       msg("user", None, tool_result_of="fc-3")],
    result=GResponse(response_id="r1", model_version="gemini-2.5-pro", candidates=[GCandidate(index=0, finish_reason="STOP",
        content=GContent(role="model", parts=[GPart(text="It needs volume.", thought=True), GPart(text="Shall I turn it up?"),
            GPart(function_call=GFunctionCall(name="volume", args={"level": 7}), thought_signature=b"\x01\x02sig")]))],
        usage_metadata=GUsage(prompt_token_count=51, candidates_token_count=17, thoughts_token_count=22, total_token_count=90)),
    answer=ans("Shall I turn it up?", "It needs volume.", [call("volume", {"level": 7})]),
    usage=use(51, 17, reasoning=22, output_accept=[17, 39]), finish_reason="STOP")

def _s_gem():
    for i, t in enumerate(["The quick", " brown", " fox"]):
        c = {"candidates": [{"content": {"parts": [{"text": t}], "role": "model"}, "index": 0}],
             "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": i + 1, "totalTokenCount": 10 + i},
             "modelVersion": "gemini-2.0-flash"}
        if i == 2:
            c["candidates"][0]["finishReason"] = "MAX_TOKENS"
        yield c
add("stream/gemini-chunks", "https://ai.google.dev/api/generate-content#method:-models.streamgeneratecontent",
    argument="Typing sample", argument_messages=[msg("user", "Typing sample")], make_stream=lambda: _s_gem(),
    answer=ans("The quick brown fox"), usage=use(9, 3), finish_reason="MAX_TOKENS", note="usage is cumulative: the last")

add("gemini/blocked-safety", "https://ai.google.dev/gemini-api/docs/safety-settings", argument="A string for contents", argument_messages=[msg("user", "A string for contents")],
    result={"candidates": [{"finishReason": "SAFETY", "index": 0, "safetyRatings": [{"category": "HARM_CATEGORY_DANGEROUS_CONTENT", "probability": "HIGH", "blocked": True}]}], "usageMetadata": {"promptTokenCount": 8, "totalTokenCount": 8}, "modelVersion": "gemini-2.5-flash"},
    answer=ans(), usage=use(8, None, output_accept=[None, 0]), finish_reason="SAFETY")

add("bedrock/converse-text", "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html",
    argument={"system": [{"text": "Only list songs."}, {"cachePoint": {"type": "default"}}], "messages": [
        {"role": "user", "content": [{"text": "Three pop songs"}, {"image": {"format": "png", "source": {"bytes": b"\x89PNG\r\n"}}}]}],
        "inferenceConfig": {"maxTokens": 200}},
    argument_messages=[msg("system", "Only list songs."), msg("user", "Three pop songs", media=1)],
    result={"ResponseMetadata": {"RequestId": "b1", "HTTPStatusCode": 200},
            "output": {"message": {"role": "assistant", "content": [{"text": "1. Levitating"}]}}, "stopReason": "max_tokens",
            "usage": {"inputTokens": 125, "outputTokens": 60, "totalTokens": 185, "cacheReadInputTokens": 100, "cacheWriteInputTokens": 0},
            "metrics": {"latencyMs": 1175}},
    answer=ans("1. Levitating"), usage=use(125, 60, cached=100, input_accept=[125, 225]), finish_reason="max_tokens")

def _s_bed():
    yield {"messageStart": {"role": "assistant"}}
    yield {"contentBlockDelta": {"delta": {"text": "Sure, "}, "contentBlockIndex": 0}}
    yield {"contentBlockDelta": {"delta": {"text": "here."}, "contentBlockIndex": 0}}
    yield {"contentBlockStop": {"contentBlockIndex": 0}}
    yield {"contentBlockStart": {"start": {"toolUse": {"toolUseId": "tu_9", "name": "go"}}, "contentBlockIndex": 1}}
    yield {"contentBlockDelta": {"delta": {"toolUse": {"input": "{\"to\": "}}, "contentBlockIndex": 1}}
    yield {"contentBlockDelta": {"delta": {"toolUse": {"input": "\"home\"}"}}, "contentBlockIndex": 1}}
    yield {"contentBlockStop": {"contentBlockIndex": 1}}
    yield {"messageStop": {"stopReason": "tool_use"}}
    yield {"metadata": {"usage": {"inputTokens": 30, "outputTokens": 21, "totalTokens": 51}, "metrics": {"latencyMs": 400}}}
add("stream/bedrock-converse-events", "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html",
    argument=[{"role": "user", "content": [{"text": "Go home"}]}], argument_messages=[msg("user", "Go home")],
    make_stream=lambda: _s_bed(), answer=ans("Sure, here.", None, [call("go", {"to": "home"}, "tu_9")]), usage=use(30, 21), finish_reason="tool_use")

add("cohere/v2-text-citations", "https://docs.cohere.com/v2/reference/chat",
    argument=[{"role": "system", "content": "Grounded answers."}, {"role": "user", "content": [{"type": "text", "text": "Who is the tallest penguin?"}]}],
    argument_messages=[msg("system", "Grounded answers."), msg("user", "Who is the tallest penguin?")],
    result=CohereV2(id="c14c80c3", finish_reason="COMPLETE", message=CohereMessage(content=[CohereText(text="Emperor penguins.")],
        citations=[{"start": 0, "end": 16, "text": "Emperor penguins", "sources": [{"type": "document", "id": "doc:0", "document": {"title": "Tall penguins"}}], "type": "TEXT_CONTENT"}]),
        usage=CohereUsage(billed_units=CohereBilled(input_tokens=18.0, output_tokens=4.0), tokens=CohereTokens(input_tokens=216.0, output_tokens=6.0))),
    answer=ans("Emperor penguins."), usage=use(216, 6, input_accept=[216, 18], output_accept=[6, 4]), finish_reason="COMPLETE",
    note="tokens, not billed_units, is what the model read and wrote; billed is accepted")

add("cohere/v1-chat", "https://docs.cohere.com/v1/reference/chat",
    argument={"chat_history": [{"role": "USER", "message": "Who discovered gravity?"}, {"role": "CHATBOT", "message": "Newton is credited."}],
              "message": "What year was he born?", "preamble": "Be exact."},
    argument_messages=[msg("system", "Be exact."), msg("user", "Who discovered gravity?"), msg("assistant", "Newton is credited."), msg("user", "What year was he born?")],
    result={"response_id": "0385c7cf", "text": "In 1643.", "generation_id": "ea2b", "finish_reason": "COMPLETE", "is_search_required": False,
            "tool_calls": None, "meta": {"api_version": {"version": "1"}, "billed_units": {"input_tokens": 31, "output_tokens": 5}, "tokens": {"input_tokens": 90, "output_tokens": 6}}},
    answer=ans("In 1643."), usage=use(90, 6, input_accept=[90, 31], output_accept=[6, 5]), finish_reason="COMPLETE",
    note="the order of preamble, history and message in the dict does not matter: read in this order")

def _s_coh():
    yield {"type": "message-start", "id": "29f", "delta": {"message": {"role": "assistant", "content": [], "tool_plan": "", "tool_calls": [], "citations": []}}}
    yield {"type": "content-start", "index": 0, "delta": {"message": {"content": {"type": "text", "text": ""}}}}
    for t in ["LLMs", " are", " big."]:
        yield {"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": t}}}}
    yield {"type": "content-end", "index": 0}
    yield {"type": "message-end", "delta": {"finish_reason": "COMPLETE", "usage": {"billed_units": {"input_tokens": 3, "output_tokens": 5}, "tokens": {"input_tokens": 68, "output_tokens": 7}}}}
add("stream/cohere-v2-events", "https://docs.cohere.com/v2/docs/streaming", argument=[{"role": "user", "content": "What is an LLM?"}], argument_messages=[msg("user", "What is an LLM?")],
    make_stream=lambda: _s_coh(), answer=ans("LLMs are big."), usage=use(68, 7, input_accept=[68, 3], output_accept=[7, 5]), finish_reason="COMPLETE")

add("mistral/magistral-thinking-chunks", "https://docs.mistral.ai/capabilities/reasoning/",
    argument=[{"role": "user", "content": "John is one of 4 children. Name the 4th."}, {"role": "assistant", "prefix": True, "content": "Fourth:"}],
    argument_messages=[msg("user", "John is one of 4 children. Name the 4th."), msg("assistant", "Fourth:")],
    result=MistralResponse(id="f1", model="magistral-medium-latest", usage=MistralUsageInfo(prompt_tokens=30, completion_tokens=140, total_tokens=170),
        choices=[MistralChoice(index=0, finish_reason="stop", message=MistralAssistantMessage(content=[
            MistralThinkChunk(thinking=[MistralTextChunk(text="The riddle names him.")]), MistralTextChunk(text="John.")]))]),
    answer=ans("John.", "The riddle names him."), usage=use(30, 140), finish_reason="stop")

add("mistral/raw-tool-text", "https://github.com/mistralai/mistral-common ([TOOL_CALLS] token)",
    argument="<s>[INST] You are brief.\n\nHow far is Mars? [/INST] 225 million km.</s>[INST] And Venus? [/INST]",
    argument_messages=[msg("user", "You are brief.\n\nHow far is Mars?"), msg("assistant", "225 million km."), msg("user", "And Venus?")],
    result="[TOOL_CALLS] [{\"name\": \"distance\", \"arguments\": {\"planet\": \"Venus\", \"unit\": \"km\"}, \"id\": \"VvvODy9mT\"}]</s>",
    answer=ans(None, None, [call("distance", {"planet": "Venus", "unit": "km"}, "VvvODy9mT")]), note="template string")

add("qwen3/think-and-tool_call-text", "https://qwen.readthedocs.io/en/latest/framework/function_call.html",
    argument=[{"role": "user", "content": "Temp in SF now?"}], argument_messages=[msg("user", "Temp in SF now?")],
    result="<think>\nThe user wants the current temperature.\n</think>\n\n<tool_call>\n{\"name\": \"get_current_temperature\", \"arguments\": {\"location\": \"San Francisco, CA, USA\", \"unit\": \"celsius\"}}\n</tool_call>",
    answer=ans(None, "The user wants the current temperature.", [call("get_current_temperature", {"location": "San Francisco, CA, USA", "unit": "celsius"})]))

add("qwen3-coder/xml-call", "https://huggingface.co/Qwen/Qwen3-Coder-30B-A3B-Instruct (qwen3coder_tool_parser.py)",
    argument=[{"role": "user", "content": "Square 12"}], argument_messages=[msg("user", "Square 12")],
    result="Let me compute.\n<tool_call>\n<function=square_the_number>\n<parameter=input_num>\n12\n</parameter>\n<parameter=note>\nfirst line\nsecond line\n</parameter>\n</function>\n</tool_call>",
    answer=ans("Let me compute.", None, [call("square_the_number", {"input_num": "12", "note": "first line\nsecond line"})]),
    note="12 may be read as a number")

add("text/tag-mentioned-in-prose", "no source: an answer that speaks of the tag in prose",
    argument=[{"role": "user", "content": "How does Hermes mark a call?"}], argument_messages=[msg("user", "How does Hermes mark a call?")],
    result="It wraps JSON in a `<tool_call>` tag; close the tag when done.",
    answer=ans("It wraps JSON in a `<tool_call>` tag; close the tag when done."), note="no call is made here")

add("kimi-k2/tool-section-text", "https://huggingface.co/moonshotai/Kimi-K2-Instruct/blob/main/docs/tool_call_guidance.md",
    argument=[{"role": "user", "content": "Weather in Beijing"}], argument_messages=[msg("user", "Weather in Beijing")],
    result="I'll check.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{\"city\": \"Beijing\"}<|tool_call_end|><|tool_calls_section_end|>",
    answer=ans("I'll check.", None, [call("get_weather", {"city": "Beijing"}, "functions.get_weather:0", names=["get_weather", "functions.get_weather"])]))

add("llama3.1/python_tag-text", "https://www.llama.com/docs/model-cards-and-prompt-formats/llama3_1/",
    argument=[{"role": "system", "content": "Environment: ipython"}, {"role": "user", "content": "weather?"}, {"role": "assistant", "content": "<|python_tag|>{\"name\": \"geo\", \"parameters\": {}}"}, {"role": "ipython", "content": "{\"output\": \"Menlo Park\"}"}],
    argument_messages=[msg("system", "Environment: ipython"), msg("user", "weather?"), msg("assistant", None, None, [call("geo", {})]), msg("tool", "{\"output\": \"Menlo Park\"}")],
    result="<|python_tag|>{\"type\": \"function\", \"name\": \"trending_songs\", \"parameters\": {\"n\": \"10\", \"genre\": \"all\"}}<|eom_id|>",
    answer=ans(None, None, [call("trending_songs", {"n": "10", "genre": "all"})]))

add("template/chatml-tools", "https://qwen.readthedocs.io (ChatML)",
    argument="<|im_start|>system\nYou are Qwen.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello! Need anything?<|im_end|>\n<|im_start|>user\nTime?<|im_end|>\n<|im_start|>assistant\n",
    argument_messages=[msg("system", "You are Qwen."), msg("user", "Hi"), msg("assistant", "Hello! Need anything?"), msg("user", "Time?")],
    result="It is noon.<|im_end|>", answer=ans("It is noon."), note="template string")

add("template/gemma", "https://ai.google.dev/gemma/docs/core/prompt-structure",
    argument="<bos><start_of_turn>user\nknock knock<end_of_turn>\n<start_of_turn>model\nwho is there<end_of_turn>\n<start_of_turn>user\nGemma<end_of_turn>\n<start_of_turn>model\n",
    argument_messages=[msg("user", "knock knock"), msg("assistant", "who is there"), msg("user", "Gemma")],
    result="Gemma who?<end_of_turn>", answer=ans("Gemma who?"), note="template string")

add("template/llama2-sys", "https://www.llama.com/docs/model-cards-and-prompt-formats/meta-llama-2/",
    argument="<s>[INST] <<SYS>>\nBe kind.\n<</SYS>>\n\nHello [/INST]", argument_messages=[msg("system", "Be kind."), msg("user", "Hello")],
    result=" Hello, friend. </s>", answer=ans("Hello, friend."), note="template string")

add("harmony/final", "https://cookbook.openai.com/articles/openai-harmony",
    argument=[{"role": "user", "content": "2 + 2?"}], argument_messages=[msg("user", "2 + 2?")],
    result="<|channel|>analysis<|message|>Simple arithmetic.<|end|><|start|>assistant<|channel|>final<|message|>2 + 2 = 4.<|return|>",
    answer=ans("2 + 2 = 4.", "Simple arithmetic."))

add("harmony/message-dicts", "https://github.com/openai/harmony (Message.to_dict)",
    argument=[{"role": "user", "name": None, "content": [{"type": "text", "text": "Weather in Tokyo?"}]},
              {"role": "assistant", "name": None, "content": [{"type": "text", "text": "Need the tool."}], "channel": "analysis"},
              {"role": "assistant", "name": None, "content": [{"type": "text", "text": "{\"location\": \"Tokyo\"}"}], "channel": "commentary", "recipient": "functions.get_weather", "content_type": "<|constrain|>json"},
              {"role": "tool", "name": "functions.get_weather", "content": [{"type": "text", "text": "{\"temperature\": 20}"}], "channel": "commentary", "recipient": "assistant"}],
    argument_messages=[msg("user", "Weather in Tokyo?"), msg("assistant", None, "Need the tool.", [call("get_weather", {"location": "Tokyo"}, names=["get_weather", "functions.get_weather"])]),
                       msg("tool", "{\"temperature\": 20}", tool_result_of="functions.get_weather")],
    result=[HarmonyMessage(author=HarmonyAuthor(role="assistant"), content=[HarmonyTextContent(text="It is mild.")], channel="analysis"),
            HarmonyMessage(author=HarmonyAuthor(role="assistant"), content=[HarmonyTextContent(text="20 degrees in Tokyo.")], channel="final")],
    answer=ans("20 degrees in Tokyo.", "It is mild."))

add("inspect/dumped-tool-call", "inspect_ai ModelOutput.model_dump()",
    argument=[{"id": "u9", "content": "Submit 42", "source": "input", "role": "user"},
              {"id": "a9", "content": "", "source": "generate", "role": "assistant", "model": "m",
               "tool_calls": [{"id": "ci9", "function": "python", "arguments": {"code": "6*7"}, "type": "function"}]},
              {"id": "t9", "content": "", "role": "tool", "tool_call_id": "ci9", "function": "python", "error": {"type": "timeout", "message": "Command timed out"}}],
    argument_messages=[msg("user", "Submit 42"), msg("assistant", None, None, [call("python", {"code": "6*7"}, "ci9")]), msg("tool", None, tool_result_of="ci9")],
    result={"model": "mockllm/model", "choices": [{"message": {"id": "a10", "content": "", "source": "generate", "role": "assistant",
        "tool_calls": [{"id": "ci10", "function": "submit", "arguments": {"answer": "42"}, "type": "function"}], "model": "mockllm/model"}, "stop_reason": "tool_calls"}],
        "completion": "", "usage": {"input_tokens": 12, "output_tokens": 7, "total_tokens": 19}, "time": 0.5},
    answer=ans(None, None, [call("submit", {"answer": "42"}, "ci10")]), usage=use(12, 7), finish_reason="tool_calls",
    note="the tool's error message may be the result's text")

add("vercel/model-messages", "https://ai-sdk.dev/docs/reference/ai-sdk-core/model-message",
    argument=[{"role": "system", "content": "You help."},
              {"role": "user", "content": [{"type": "text", "text": "Weather in Brno?"}, {"type": "file", "mediaType": "application/pdf", "data": "JVBERi0xLjQ=", "filename": "a.pdf"}]},
              {"role": "assistant", "content": [{"type": "reasoning", "text": "Use weather."}, {"type": "tool-call", "toolCallId": "tc_1", "toolName": "weather", "input": {"city": "Brno"}}]},
              {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "tc_1", "toolName": "weather", "output": {"type": "json", "value": {"temp": 7}}}]}],
    argument_messages=[msg("system", "You help."), msg("user", "Weather in Brno?", media=1),
        msg("assistant", None, "Use weather.", [call("weather", {"city": "Brno"}, "tc_1")]), msg("tool", None, tool_result_of="tc_1")],
    result={"text": "7 degrees in Brno.", "reasoningText": "Just report.", "content": [{"type": "reasoning", "text": "Just report."}, {"type": "text", "text": "7 degrees in Brno."}],
            "toolCalls": [], "finishReason": "stop", "usage": {"inputTokens": 55, "outputTokens": 14, "totalTokens": 69, "reasoningTokens": 5, "cachedInputTokens": 0},
            "warnings": [], "response": {"id": "aitxt-1", "modelId": "gpt-4o", "messages": []}},
    answer=ans("7 degrees in Brno.", "Just report."), usage=use(55, 14, cached=0, reasoning=5), finish_reason="stop")

def _s_ver():
    yield {"type": "start"}
    yield {"type": "start-step", "request": {}, "warnings": []}
    yield {"type": "text-start", "id": "0"}
    for t in ["Good", " day."]:
        yield {"type": "text-delta", "id": "0", "text": t}
    yield {"type": "text-end", "id": "0"}
    yield {"type": "tool-call", "toolCallId": "tc_s", "toolName": "clock", "input": {"tz": "UTC"}}
    yield {"type": "finish-step", "finishReason": "tool-calls", "usage": {"inputTokens": 20, "outputTokens": 11, "totalTokens": 31}, "response": {"id": "aitxt"}}
    yield {"type": "finish", "finishReason": "tool-calls", "totalUsage": {"inputTokens": 20, "outputTokens": 11, "totalTokens": 31}}
add("stream/vercel-full-stream", "https://ai-sdk.dev/docs/reference/ai-sdk-core/stream-text (fullStream parts)", argument=[{"role": "user", "content": "Greet and tell the time"}], argument_messages=[msg("user", "Greet and tell the time")],
    make_stream=lambda: _s_ver(), answer=ans("Good day.", None, [call("clock", {"tz": "UTC"}, "tc_s")]), usage=use(20, 11), finish_reason="tool-calls")

add("langchain/aimessage-usage", "https://python.langchain.com/docs/concepts/messages/",
    argument=[LCSystem(content="Be short."), LCHuman(content=[{"type": "text", "text": "Multiply 3 and 12"}, {"type": "image_url", "image_url": {"url": "https://e.org/x.png"}}], id="h1"),
              LCAI(content="", tool_calls=[{"name": "multiply", "args": {"a": 3, "b": 12}, "id": "call_l1", "type": "tool_call"}], id="run-1"),
              LCTool(content="36", tool_call_id="call_l1", name="multiply")],
    argument_messages=[msg("system", "Be short."), msg("user", "Multiply 3 and 12", media=1), msg("assistant", None, None, [call("multiply", {"a": 3, "b": 12}, "call_l1")]), msg("tool", "36", tool_result_of="call_l1")],
    result=LCAI(content="36", response_metadata={"finish_reason": "stop", "model_name": "gpt-4o", "logprobs": None}, id="run-2",
        usage_metadata={"input_tokens": 100, "output_tokens": 2, "total_tokens": 102, "input_token_details": {"cache_read": 64}, "output_token_details": {"reasoning": 0}}),
    answer=ans("36"), usage=use(100, 2, cached=64, reasoning=0), finish_reason="stop")

add("langchain/messages-to-dict", "langchain_core.messages.messages_to_dict / dumpd",
    argument=[{"type": "human", "data": {"content": "hi", "additional_kwargs": {}, "response_metadata": {}, "type": "human", "name": None, "id": None, "example": False}},
              {"type": "ai", "data": {"content": "hello!", "type": "ai", "tool_calls": [], "invalid_tool_calls": []}},
              {"type": "human", "data": {"content": "bye", "type": "human"}}],
    argument_messages=[msg("user", "hi"), msg("assistant", "hello!"), msg("user", "bye")],
    result={"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "AIMessage"], "kwargs": {"content": "Farewell.", "type": "ai", "id": "run--7",
            "usage_metadata": {"input_tokens": 21, "output_tokens": 3, "total_tokens": 24}, "response_metadata": {"finish_reason": "stop"}, "tool_calls": [], "invalid_tool_calls": []}},
    answer=ans("Farewell."), usage=use(21, 3), finish_reason="stop")

def _s_lc():
    yield LCAIChunk(content="", id="run-c")
    yield LCAIChunk(content="Cold", id="run-c")
    yield LCAIChunk(content=" brew.", id="run-c", response_metadata={"finish_reason": "stop"})
    yield LCAIChunk(content="", id="run-c", usage_metadata={"input_tokens": 14, "output_tokens": 4, "total_tokens": 18})
add("stream/langchain-chunks", "https://python.langchain.com/docs/how_to/streaming/", argument=[("system", "Barista."), ("human", "Summer drink?")],
    argument_messages=[msg("system", "Barista."), msg("user", "Summer drink?")], make_stream=lambda: _s_lc(), answer=ans("Cold brew."), usage=use(14, 4), finish_reason="stop")

add("llamaindex/completion", "llama_index/core/base/llms/types.py CompletionResponse", argument="Paul Graham is ", argument_messages=[msg("user", "Paul Graham is ")],
    result=LICompletionResponse(text="an essayist.", raw={"model": "m"}, additional_kwargs={"prompt_tokens": 6, "completion_tokens": 4, "total_tokens": 10}), answer=ans("an essayist."), usage=use(6, 4))

add("smolagents/tool-call", "smolagents/models.py",
    argument=[SAChatMessage(role="system", content=[{"type": "text", "text": "Solve tasks."}]), {"role": "user", "content": [{"type": "text", "text": "New task: weather"}]},
              {"role": "tool-response", "content": [{"type": "text", "text": "Observation:\nsunny"}]}],
    argument_messages=[msg("system", "Solve tasks."), msg("user", "New task: weather"), msg("tool", "Observation:\nsunny")],
    result=SAChatMessage(role="assistant", content="I will finish.", tool_calls=[SAToolCall(id="sa_1", type="function", function=SAFunction(name="final_answer", arguments={"answer": "sunny"}))],
        token_usage=SATokenUsage(input_tokens=320, output_tokens=24, total_tokens=344)),
    answer=ans("I will finish.", None, [call("final_answer", {"answer": "sunny"}, "sa_1")]), usage=use(320, 24), note="the tool response has no id")

add("verifiers/response", "verifiers/v1/types.py",
    argument=[VSystem(content="Wordle."), VUser(content="Guess."), VAssistant(content=None, reasoning_content="start with crane", tool_calls=[VToolCall(id="vc1", name="guess", arguments="{\"word\": \"crane\"}")]), VTool(tool_call_id="vc1", content="GYXXX", name="guess")],
    argument_messages=[msg("system", "Wordle."), msg("user", "Guess."), msg("assistant", None, "start with crane", [call("guess", {"word": "crane"}, "vc1")]), msg("tool", "GYXXX", tool_result_of="vc1")],
    result=VResponse(id="v1", created=5, model="Qwen/Qwen3-4B", finish_reason="stop", message=VAssistant(content="<guess>CUBIC</guess>", reasoning_content="c then r elsewhere"),
        usage=VUsage(prompt_tokens=60, completion_tokens=19, cached_input_tokens=20), tokens=VTurnTokens(prompt_ids=[1, 2, 3], completion_ids=[7, 8], completion_logprobs=[-0.1, -0.4])),
    answer=ans("<guess>CUBIC</guess>", "c then r elsewhere"), usage=use(60, 19, cached=20, input_accept=[60, 80]), finish_reason="stop")

add("verifiers/rollout-state", "https://verifiers.readthedocs.io (prompt, completion, answer, info)",
    argument={"prompt": [{"role": "user", "content": "Reverse 'abc'."}], "answer": "cba", "task": "default", "info": {"len": 3}}, argument_messages=[msg("user", "Reverse 'abc'.")],
    result={"completion": [{"role": "assistant", "content": "<answer>cba</answer>"}], "reward": 1.0, "is_completed": True}, answer=ans("<answer>cba</answer>"))

add("trl/standard-rollout-func", "https://huggingface.co/docs/trl/openenv (rollout_func returns prompt_ids, completion_ids, logprobs)", argument=["The sky is"], argument_messages=[msg("user", "The sky is")],
    result={"prompt_ids": [[785, 12884, 374]], "completion_ids": [[3691, 13]], "logprobs": [[-0.31, -0.02]]}, answer=ans(), usage=use(3, 2, derived=True), note="ids only")

add("trl/vlm-conversational", "https://huggingface.co/docs/trl/dataset_formats#vision-datasets", argument={"images": ["iVBORw0KGgo="], "prompt": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is shown?"}]}]},
    argument_messages=[msg("user", "What is shown?", media=1)], result=[[{"role": "assistant", "content": [{"type": "text", "text": "A fox."}]}]], answer=ans("A fox."),
    note="the image may be counted once or twice (placeholder and images column)")

add("ids/numpy", "numpy arrays of ids", argument=np.array([[1, 15043, 3186]], dtype=np.int64), argument_messages=[], result=np.array([306, 626, 2], dtype=np.int32), answer=ans(), note="ids alone")

add("verl/agent-loop-output", "https://github.com/volcengine/verl verl/experimental/agent_loop/agent_loop.py",
    argument={"raw_prompt": [{"role": "user", "content": "Prove it."}], "data_source": "gsm8k"}, argument_messages=[msg("user", "Prove it.")],
    result=AgentLoopOutput(prompt_ids=[10, 11, 12], response_ids=[20, 21, 22, 23], response_mask=[1, 1, 0, 0], response_logprobs=[-0.5, -0.25, 0.0, 0.0], num_turns=4, metrics=AgentLoopMetrics(generate_sequences=2.5, tool_calls=0.75), extra_fields={"turn_scores": [0.5]}),
    answer=ans(), usage=use(3, 4, derived=True), note="ids only")

add("verl/rlinf-text-and-ids", "RLinf rlinf/workers/agent_loop/agent_loop.py AgentLoopOutput", argument={"messages": [{"role": "user", "content": "Find the capital."}], "prompt_ids": [31, 32]}, argument_messages=[msg("user", "Find the capital.")],
    result={"prompt_ids": [31, 32], "response_ids": [41, 42, 43], "response_mask": [1, 1, 1], "response_logprobs": [-0.1, -0.2, -0.3], "prompt_text": "Find the capital.", "response_text": "It is Lima.", "num_turns": 2},
    answer=ans("It is Lima."), usage=use(2, 3, derived=True))

add("container/tuple-of-messages", "tuples in place of lists", argument=({"role": "system", "content": "S1"}, {"role": "user", "content": "U1"}), argument_messages=[msg("system", "S1"), msg("user", "U1")],
    result=({"role": "assistant", "content": "A1"},), answer=ans("A1"))

add("container/json-text-of-messages", "messages as JSON text (columns of data sets)", argument="[{\"role\": \"user\", \"content\": \"From JSON\"}]", argument_messages=[msg("user", "From JSON")],
    result="{\"answer\": 42, \"why\": \"sum\"}", answer=ans("{\"answer\": 42, \"why\": \"sum\"}"), note="the prompt may also be one user message with the JSON text; the answer's JSON is the text")

add("container/sharegpt", "https://github.com/lm-sys/FastChat (ShareGPT conversations)", argument={"conversations": [{"from": "system", "value": "Guide."}, {"from": "human", "value": "Where to?"}, {"from": "gpt", "value": "North."}, {"from": "human", "value": "Then?"}]},
    argument_messages=[msg("system", "Guide."), msg("user", "Where to?"), msg("assistant", "North."), msg("user", "Then?")], result={"from": "gpt", "value": "East."}, answer=ans("East."))

add("result/message-dict", "a function that returns the assistant's message", argument=[{"role": "user", "content": "m"}], argument_messages=[msg("user", "m")],
    result={"role": "assistant", "content": "Calling.", "tool_calls": [{"id": "g1", "type": "function", "function": {"name": "f", "arguments": {"k": [1, {"z": None}]}}}]}, answer=ans("Calling.", None, [call("f", {"k": [1, {"z": None}]}, "g1")]))

add("result/list-of-messages", "the whole turn returned", argument=[{"role": "user", "content": "do"}], argument_messages=[msg("user", "do")],
    result=[{"role": "assistant", "content": None, "tool_calls": [{"id": "g2", "type": "function", "function": {"name": "ls", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "g2", "content": "a.txt"}, {"role": "assistant", "content": "One file: a.txt"}],
    answer=ans("One file: a.txt", None, [call("ls", {}, "g2")]), note="the last assistant message is the answer; whether the first's call counts among the answer's calls is open: [] is fine too")

add("result/text-usage-tuple", "(text, usage)", argument=[{"role": "user", "content": "t2"}], argument_messages=[msg("user", "t2")], result=("T2!", CompletionUsage(completion_tokens=3, prompt_tokens=32, total_tokens=35)), answer=ans("T2!"), usage=use(32, 3))

add("result/usage-text-tuple", "(usage, text)", argument=[{"role": "user", "content": "t3"}], argument_messages=[msg("user", "t3")], result=({"input_tokens": 33, "output_tokens": 4}, "T3!"), answer=ans("T3!"), usage=use(33, 4))

add("result/namedtuple-message-usage", "typing.NamedTuple", argument="nt2", argument_messages=[msg("user", "nt2")], result=LMReply(message={"role": "assistant", "content": [{"type": "text", "text": "NT2!"}]}, usage={"input_tokens": 9, "output_tokens": 1, "cache_read_input_tokens": 4}, finish_reason="stop"),
    answer=ans("NT2!"), usage=use(9, 1, cached=4), finish_reason="stop")

add("result/message-ids-logprobs", "(message, ids, logprobs)", argument=[{"role": "user", "content": "mil"}], argument_messages=[msg("user", "mil")], result=({"role": "assistant", "content": "MIL"}, [101, 102, 103], [-0.125, -0.5, -0.0625]), answer=ans("MIL"))

add("result/dict-output-usage", "dict with output", argument="do", argument_messages=[msg("user", "do")], result={"output": "DO", "usage": {"prompt_tokens": 7, "completion_tokens": 6}, "finish_reason": "stop"}, answer=ans("DO"), usage=use(7, 6), finish_reason="stop")

add("result/dict-completion-response", "dict with completion", argument="dcr", argument_messages=[msg("user", "dcr")], result={"completion": "DCR", "stop_reason": "stop_sequence", "stop": "\n\nHuman:"}, answer=ans("DCR"), finish_reason="stop_sequence")

add("result/dataclass-text-ids", "a dataclass", argument="dt", argument_messages=[msg("user", "dt")], result=RolloutResult(text="<think>t</think>DT", token_ids=[5, 6, 7], logprobs=[-0.1, -0.2, -0.3], finish_reason="length"), answer=ans("DT", "t"), finish_reason="length")

add("result/object-message", "an object with message and generations", argument="om", argument_messages=[msg("user", "om")], result=SimpleNamespace(message=SimpleNamespace(role="assistant", content="OM", tool_calls=None), usage=SimpleNamespace(prompt_tokens=2, completion_tokens=1, total_tokens=3)), answer=ans("OM"), usage=use(2, 1))

add("stream/text-pieces", "a generator of text pieces", argument="tp", argument_messages=[msg("user", "tp")], make_stream=lambda: iter(["One", ", ", "two", "."]), answer=ans("One, two."))

add("result/none", "a function that gave no answer", argument=[{"role": "user", "content": "n"}], argument_messages=[msg("user", "n")], result=None, answer=ans())

add("sglang/output_ids-only", "sglang --skip-tokenizer-init", argument={"input_ids": [785, 6722, 315], "return_logprob": True}, argument_messages=[],
    result={"output_ids": [9625, 374], "meta_info": {"id": "8e", "finish_reason": {"type": "length", "length": 2}, "prompt_tokens": 3, "completion_tokens": 2, "cached_tokens": 0, "output_token_logprobs": [[-0.5, 9625, None], [-0.25, 374, None]]}},
    answer=ans(), usage=use(3, 2, cached=0), finish_reason="length")

def _s_sgl():
    for i, t in enumerate(["Sea", "Sea and", "Sea and sky"]):
        yield {"text": t, "output_ids": list(range(40, 41 + i)), "meta_info": {"id": "7d", "finish_reason": {"type": "stop", "matched": 2} if i == 2 else None, "prompt_tokens": 4, "completion_tokens": i + 1, "cached_tokens": 0}}
add("stream/sglang-cumulative", "https://docs.sglang.ai/basic_usage/sampling_params.html (stream: text so far in each)", argument={"text": "Blue things:", "stream": True}, argument_messages=[msg("user", "Blue things:")], make_stream=lambda: _s_sgl(),
    answer=ans("Sea and sky"), usage=use(4, 3, cached=0), finish_reason="stop", note="each chunk holds the text so far")

add("vllm/list-of-request-outputs", "LLM.chat returns a list", argument=[[{"role": "user", "content": "Capital of Peru?"}]], argument_messages=[msg("user", "Capital of Peru?")],
    result=[VLLMRequestOutput(request_id="1", prompt="<|im_start|>user\nCapital of Peru?<|im_end|>\n<|im_start|>assistant\n", prompt_token_ids=[1, 2, 3, 4], outputs=[VLLMCompletionOutput(index=0, text="<think>\nEasy.\n</think>\n\nLima", token_ids=[5, 6, 7], logprobs=None, finish_reason="stop", stop_reason=None)])],
    answer=ans("Lima", "Easy."), usage=use(4, 3, derived=True), finish_reason="stop")

add("vllm/chat-api-reasoning-ids", "https://docs.vllm.ai/en/latest/features/reasoning_outputs/", argument={"messages": [{"role": "user", "content": "Bigger: 9.9 or 9.11?"}], "return_token_ids": True}, argument_messages=[msg("user", "Bigger: 9.9 or 9.11?")],
    result={"id": "chatcmpl-v", "object": "chat.completion", "created": 1, "model": "Qwen/Qwen3-8B", "choices": [{"index": 0, "message": {"role": "assistant", "content": "9.9", "refusal": None, "annotations": None, "audio": None, "function_call": None, "tool_calls": [], "reasoning": "9.90 > 9.11"}, "logprobs": None, "finish_reason": "stop", "stop_reason": None, "token_ids": [24, 13, 24]}],
            "service_tier": None, "usage": {"prompt_tokens": 19, "total_tokens": 60, "completion_tokens": 41, "prompt_tokens_details": {"cached_tokens": 16}}, "prompt_logprobs": None, "prompt_token_ids": [151644, 872], "kv_transfer_params": None},
    answer=ans("9.9", "9.90 > 9.11"), usage=use(19, 41, cached=16), finish_reason="stop")

add("transformers/pipeline-chat", "https://huggingface.co/docs/transformers/conversations", argument=[{"role": "system", "content": "Sassy."}, {"role": "user", "content": "Fun in New York?"}], argument_messages=[msg("system", "Sassy."), msg("user", "Fun in New York?")],
    result=[{"generated_text": [{"role": "system", "content": "Sassy."}, {"role": "user", "content": "Fun in New York?"}, {"role": "assistant", "content": "Try the zoo."}]}], answer=ans("Try the zoo."), note="only the last message is the answer")

add("tgi/generate-details", "https://huggingface.github.io/text-generation-inference/", argument={"inputs": "What is Deep Learning?", "parameters": {"max_new_tokens": 20, "details": True}}, argument_messages=[msg("user", "What is Deep Learning?")],
    result={"generated_text": "Neural nets, stacked.", "details": {"finish_reason": "length", "generated_tokens": 20, "seed": None, "prefill": [{"id": 1, "text": "What", "logprob": None}, {"id": 2, "text": " is", "logprob": -1.2}], "tokens": [{"id": 9, "text": "Neural", "logprob": -0.4, "special": False}]}},
    answer=ans("Neural nets, stacked."), usage=use(None, 20, input_accept=[None, 2]), finish_reason="length", note="no input count is given (prefill holds 2 here)")

add("llamacpp/completion", "https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md", argument={"prompt": "Building a website in 10 steps:", "n_predict": 12}, argument_messages=[msg("user", "Building a website in 10 steps:")],
    result={"index": 0, "content": " Pick a name.", "tokens": [], "id_slot": 0, "stop": True, "model": "gguf", "tokens_predicted": 12, "tokens_evaluated": 9, "generation_settings": {"n_ctx": 4096, "temperature": 0.8, "stop": []}, "prompt": "<s> Building a website in 10 steps:", "has_new_line": False, "truncated": False, "stop_type": "limit", "stopping_word": "", "tokens_cached": 20,
            "timings": {"prompt_n": 9, "prompt_ms": 30.5, "predicted_n": 12, "predicted_ms": 200.25}},
    answer=ans(" Pick a name."), usage=use(9, 12), finish_reason="limit", note="tokens_cached is the slot's cache, not a count of cached prompt tokens")

def _s_lcp():
    for t in ["Red", ", green"]:
        yield {"index": 0, "content": t, "tokens": [1], "stop": False, "id_slot": -1, "tokens_predicted": 1, "tokens_evaluated": 6}
    yield {"index": 0, "content": "", "tokens": [], "stop": True, "stop_type": "eos", "tokens_predicted": 3, "tokens_evaluated": 6, "truncated": False, "stopping_word": ""}
add("stream/llamacpp-completion", "https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md (stream)", argument="Colours:", argument_messages=[msg("user", "Colours:")], make_stream=lambda: _s_lcp(), answer=ans("Red, green"), usage=use(6, 3), finish_reason="eos")

add("ollama/chat-object-tools", "ollama python ChatResponse", argument=[{"role": "user", "content": "Weather in Tokyo"}, OllamaMessage(role="assistant", content="", tool_calls=[OllamaToolCall(function=OllamaFunction(name="get_weather", arguments={"city": "Tokyo"}))]), {"role": "tool", "tool_name": "get_weather", "content": "22C"}],
    argument_messages=[msg("user", "Weather in Tokyo"), msg("assistant", None, None, [call("get_weather", {"city": "Tokyo"})]), msg("tool", "22C", tool_result_of="get_weather")],
    result=OllamaChat(model="qwen3", created_at="2025-07-07T20:32:53Z", done=True, done_reason="stop", prompt_eval_count=171, eval_count=19, message=OllamaMessage(role="assistant", content="", tool_calls=[OllamaToolCall(function=OllamaFunction(name="get_humidity", arguments={"city": "Tokyo"}))])),
    answer=ans(None, None, [call("get_humidity", {"city": "Tokyo"})]), usage=use(171, 19), finish_reason="stop")

add("ollama/generate", "https://docs.ollama.com/api/generate", argument={"model": "llama3.2", "prompt": "Why?", "system": "Terse."}, argument_messages=[msg("system", "Terse."), msg("user", "Why?")],
    result={"model": "llama3.2", "created_at": "2023-11-09T21:07:55Z", "response": "Because.", "done": True, "done_reason": "length", "context": [128006, 882], "prompt_eval_count": 14, "eval_count": 2}, answer=ans("Because."), usage=use(14, 2), finish_reason="length")

add("litellm/model-response-thinking", "https://docs.litellm.ai/docs/reasoning_content", argument=[{"role": "user", "content": "Capital of France?"}], argument_messages=[msg("user", "Capital of France?")],
    result=LiteLLMModelResponse(id="chatcmpl-l", created=9, model="claude-3-7-sonnet", choices=[LiteLLMChoices(finish_reason="stop", index=0, message=LiteLLMMessage(content="Paris", reasoning_content="A known fact.", thinking_blocks=[{"type": "thinking", "thinking": "A known fact.", "signature": "EqoBCkgI"}], provider_specific_fields={"citations": None}))],
        usage=LiteLLMUsage(completion_tokens=30, prompt_tokens=45, total_tokens=75, cache_read_input_tokens=10, cache_creation_input_tokens=0, prompt_tokens_details=PromptTokensDetails(cached_tokens=10))),
    answer=ans("Paris", "A known fact."), usage=use(45, 30, cached=10), finish_reason="stop", note="the reasoning is written twice")

add("litellm/dict-tools", "https://docs.litellm.ai/docs/completion/output", argument={"model": "gpt-4o", "messages": [{"role": "user", "content": "tool"}], "metadata": {"trace": "t-5"}}, argument_messages=[msg("user", "tool")],
    result={"id": "chatcmpl-m", "created": 10, "model": "gpt-4o", "object": "chat.completion", "choices": [{"finish_reason": "tool_calls", "index": 0, "message": {"content": None, "role": "assistant", "tool_calls": [{"index": 0, "function": {"arguments": "{\"u\":\"c\"}", "name": "temp"}, "id": "call_ll", "type": "function"}], "function_call": None, "provider_specific_fields": {"refusal": None}}}],
            "usage": {"completion_tokens": 9, "prompt_tokens": 50, "total_tokens": 59}, "_hidden_params": {"response_cost": 0.0002}},
    answer=ans(None, None, [call("temp", {"u": "c"}, "call_ll")]), usage=use(50, 9), finish_reason="tool_calls")

add("dspy/lm-outputs-reasoning", "dspy.LM returns dicts with text, reasoning_content, logprobs when there is more than text", argument="2*3?", argument_messages=[msg("user", "2*3?")], result=[{"text": "6", "reasoning_content": "two threes", "logprobs": None}], answer=ans("6", "two threes"))

add("dspy/prediction", "https://dspy.ai/api/primitives/Prediction/", argument={"question": "Capital of Chad?"}, argument_messages=[msg("user", "Capital of Chad?")],
    result=DSPyPrediction(_store={"reasoning": "Known.", "answer": "N'Djamena"}, _lm_usage={"openai/gpt-4o-mini": {"prompt_tokens": 150, "completion_tokens": 30, "total_tokens": 180}}), answer=ans("N'Djamena", "Known."), usage=use(150, 30),
    note="hard: a store of fields; text that holds the store's JSON is forgiven, in the argument too")
