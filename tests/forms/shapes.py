"""Stand-in classes with the SDKs' real class and field names, and the conventions of the corpus.

Conventions of a Case (a plain dict):
  text           visible text; several parts are joined with a newline here. Compare with ALL white space removed
                 (a converter may join with "", " " or a newline).
  argument_messages
                 adjacent messages of one role may be merged or split by a converter: apply merge_adjacent() to both
                 sides before comparing. Where a message holds a tool result, "text" is that result's text (whether
                 the converter keeps it in a text part or in the tool_result part); None where the result is
                 structured data (then only "no leaf value lost" counts). tool_result_of is the call's id (or the
                 function's name where the form has no ids), or a list of ids.
                 [] means that no message can be read (ids alone); a message that holds the ids and no text is fine.
  role           as in the payload after ROLE_ALIASES; "system" and "developer" count as the same, and a message that
                 holds a tool result may be "user" or "tool".
  tool_calls     {"name", "arguments", "id"?}; arguments as a dict (compare after JSON decoding) or a str where the
                 input is free text. "names": other names that are as good (built-in items that have no name of their
                 own). "optional": True: a hosted tool's record, which may as well be kept as an unknown/other part;
                 only "no leaf value lost" is demanded.
  usage          input/output as the provider writes them; "input_accept"/"output_accept": other numbers as good
                 (a provider whose input excludes the cache, or whose output excludes thoughts).
                 "derived": True: the numbers are the lengths of the ids given, not written as usage: may be None.
  finish_reason  the provider's own string; FINISH_SAME holds those that may be normalised to one another.
                 OpenAI Responses has a status only: None is as good as "completed". Compare without regard to case.
  equalities     None and "" are the same text; None and 0 are the same cached/reasoning count. usage None: the form
                 writes none, and none should be invented.
  leaves         suggested measure of "no leaf value lost": every str/number/bytes leaf of the payload is found in the
                 converted record, as a set (a value written twice in the form need be kept once). Text leaves count as
                 found when they are a substring of a kept text after removal of white space; in streams the JOINED
                 text and arguments, and the last values, stand for the pieces (sequence numbers, indices and repeated
                 ids are no loss). In template strings and raw model text the control tokens (<|im_start|>, <s>,
                 [INST], <|eot_id|>, <think>, <tool_call> ...) are no leaves, and an answer's text is without them.
                 Booleans, None and a payload's discriminators ("type", "object", role) are no leaves.
  make_stream    in place of "result": a function without arguments that returns a fresh iterator.
  note           for reports.
"""

# fmt: off
import dataclasses
from collections import namedtuple
from types import SimpleNamespace  # noqa: F401
from typing import Any, NamedTuple, Optional  # noqa: F401

import numpy as np  # noqa: F401
from pydantic import BaseModel, ConfigDict, create_model

ROLE_ALIASES = {"model": "assistant", "ai": "assistant", "AIMessageChunk": "assistant", "human": "user",
                "CHATBOT": "assistant", "USER": "user", "SYSTEM": "system", "TOOL": "tool", "function": "tool",
                "ipython": "tool", "tool-call": "assistant", "tool-response": "tool", "gpt": "assistant"}
FINISH_SAME = [
    {"stop", "end_turn", "STOP", "COMPLETE", "completed", "eos", "eos_token", "stop_sequence", "STOP_SEQUENCE",
     "FinishReason.STOP"},
    {"length", "max_tokens", "MAX_TOKENS", "max_output_tokens", "limit", "incomplete", "model_length"},
    {"tool_calls", "tool_use", "TOOL_CALL", "tool-calls", "function_call"},
    {"content_filter", "SAFETY", "refusal", "guardrail_intervened", "content-filter"},
    {"abort", "aborted", "cancelled"},
]


def merge_adjacent(messages):
    out = []
    for m in messages:
        if out and out[-1]["role"] == m["role"]:
            last = out[-1]
            for key in ("text", "reasoning"):
                both = [x for x in (last[key], m[key]) if x is not None]
                last[key] = "\n".join(both) if both else None
            last["tool_calls"] = last["tool_calls"] + m["tool_calls"]
            ids = [i for x in (last["tool_result_of"], m["tool_result_of"]) if x is not None
                   for i in (x if isinstance(x, list) else [x])]
            last["tool_result_of"] = None if not ids else ids[0] if len(ids) == 1 else ids
            last["media"] += m["media"]
        else:
            out.append(dict(m))
    return out


def msg(role, text=None, reasoning=None, tool_calls=(), tool_result_of=None, media=0):
    return {"role": role, "text": text, "reasoning": reasoning, "tool_calls": list(tool_calls),
            "tool_result_of": tool_result_of, "media": media}


def call(name, arguments, id=None, **more):
    out = {"name": name, "arguments": arguments, **more}
    if id is not None:
        out["id"] = id
    return out


def ans(text=None, reasoning=None, tool_calls=()):
    return {"text": text, "reasoning": reasoning, "tool_calls": list(tool_calls)}


def use(input, output, **more):
    return {"input": input, "output": output, **more}


def make_add(cases):
    def add(name, source, argument=None, argument_messages=None, result=None, answer=None, usage=None,
            finish_reason=None, make_stream=None, family=None, note=None):
        c = {"name": name, "source": source, "argument": argument, "argument_messages": argument_messages,
             "result": result, "answer": answer, "usage": usage, "finish_reason": finish_reason, "family": family}
        if make_stream is not None:
            c["make_stream"] = make_stream
        if note:
            c["note"] = note
        cases.append(c)
    return add


class _Base(BaseModel):
    model_config = ConfigDict(extra="allow", protected_namespaces=(), arbitrary_types_allowed=True)


def model(qualified, *required, **defaults):
    module, name = qualified.rsplit(".", 1)
    fields = {f: (Any, ...) for f in required}
    fields.update({f: (Any, v) for f, v in defaults.items()})
    return create_model(name, __base__=_Base, __module__=module, **fields)


def data(qualified, *required, **defaults):
    module, name = qualified.rsplit(".", 1)
    fields = [(f, Any) for f in required]
    for f, v in defaults.items():
        fields.append((f, Any, dataclasses.field(default_factory=type(v)) if isinstance(v, (list, dict))
                       else dataclasses.field(default=v)))
    cls = dataclasses.make_dataclass(name, fields)
    cls.__module__ = module
    return cls


# OpenAI chat
_c = "openai.types.chat.chat_completion."
ChatCompletion = model(_c + "ChatCompletion", "id", "choices", "created", "model", object="chat.completion",
                       service_tier=None, system_fingerprint=None, usage=None)
Choice = model(_c + "Choice", "finish_reason", "index", "message", logprobs=None)
ChoiceLogprobs = model(_c + "ChoiceLogprobs", content=None, refusal=None)
TokenLogprob = model("openai.types.chat.chat_completion_token_logprob.ChatCompletionTokenLogprob", "token", "logprob",
                     "top_logprobs", bytes=None)
ChatCompletionMessage = model("openai.types.chat.chat_completion_message.ChatCompletionMessage", content=None,
                              refusal=None, role="assistant", annotations=None, audio=None, function_call=None,
                              tool_calls=None)
Annotation = model("openai.types.chat.chat_completion_message.Annotation", "url_citation", type="url_citation")
AnnotationURLCitation = model("openai.types.chat.chat_completion_message.AnnotationURLCitation", "end_index",
                              "start_index", "title", "url")
ChatCompletionAudio = model("openai.types.chat.chat_completion_audio.ChatCompletionAudio", "id", "data", "expires_at",
                            "transcript")
ToolCallFn = model("openai.types.chat.chat_completion_message_function_tool_call."
                   "ChatCompletionMessageFunctionToolCall", "id", "function", type="function")
Function = model("openai.types.chat.chat_completion_message_function_tool_call.Function", "arguments", "name")
ToolCallCustom = model("openai.types.chat.chat_completion_message_custom_tool_call."
                       "ChatCompletionMessageCustomToolCall", "id", "custom", type="custom")
Custom = model("openai.types.chat.chat_completion_message_custom_tool_call.Custom", "input", "name")
CompletionUsage = model("openai.types.completion_usage.CompletionUsage", "completion_tokens", "prompt_tokens",
                        "total_tokens", completion_tokens_details=None, prompt_tokens_details=None)
CompletionTokensDetails = model("openai.types.completion_usage.CompletionTokensDetails",
                                accepted_prediction_tokens=None, audio_tokens=None, reasoning_tokens=None,
                                rejected_prediction_tokens=None)
PromptTokensDetails = model("openai.types.completion_usage.PromptTokensDetails", audio_tokens=None, cached_tokens=None)
_k = "openai.types.chat.chat_completion_chunk."
ChatCompletionChunk = model(_k + "ChatCompletionChunk", "id", "choices", "created", "model",
                            object="chat.completion.chunk", usage=None)
ChunkChoice = model(_k + "Choice", "delta", finish_reason=None, index=0, logprobs=None)
ChoiceDelta = model(_k + "ChoiceDelta", content=None, function_call=None, refusal=None, role=None, tool_calls=None)
ChoiceDeltaToolCall = model(_k + "ChoiceDeltaToolCall", "index", id=None, function=None, type=None)
ChoiceDeltaToolCallFunction = model(_k + "ChoiceDeltaToolCallFunction", arguments=None, name=None)
Completion = model("openai.types.completion.Completion", "id", "choices", "created", "model",
                   object="text_completion", usage=None)
CompletionChoice = model("openai.types.completion_choice.CompletionChoice", "finish_reason", "index", "text",
                         logprobs=None)

# OpenAI Responses
_r = "openai.types.responses."
Response = model(_r + "response.Response", "id", "created_at", "model", "output", object="response", error=None,
                 incomplete_details=None, instructions=None, metadata=None, parallel_tool_calls=True,
                 temperature=1.0, tool_choice="auto", tools=[], top_p=1.0, status="completed", usage=None)
ResponseOutputMessage = model(_r + "response_output_message.ResponseOutputMessage", "id", "content", role="assistant",
                              status="completed", type="message", phase=None)
ResponseOutputText = model(_r + "response_output_text.ResponseOutputText", "text", annotations=[], type="output_text",
                           logprobs=None)
ResponseOutputRefusal = model(_r + "response_output_refusal.ResponseOutputRefusal", "refusal", type="refusal")
ResponseFunctionToolCall = model(_r + "response_function_tool_call.ResponseFunctionToolCall", "arguments", "call_id",
                                 "name", type="function_call", id=None, status=None)
ResponseReasoningItem = model(_r + "response_reasoning_item.ResponseReasoningItem", "id", "summary", type="reasoning",
                              content=None, encrypted_content=None, status=None)
Summary = model(_r + "response_reasoning_item.Summary", "text", type="summary_text")
ReasoningContent = model(_r + "response_reasoning_item.Content", "text", type="reasoning_text")
ResponseFunctionWebSearch = model(_r + "response_function_web_search.ResponseFunctionWebSearch", "id", "action",
                                  "status", type="web_search_call")
ActionSearch = model(_r + "response_function_web_search.ActionSearch", queries=None, query=None, sources=None,
                     type="search")
ResponseCustomToolCall = model(_r + "response_custom_tool_call.ResponseCustomToolCall", "call_id", "input", "name",
                               type="custom_tool_call", id=None, namespace=None)
ResponseCodeInterpreterToolCall = model(_r + "response_code_interpreter_tool_call.ResponseCodeInterpreterToolCall",
                                        "id", "code", "container_id", outputs=None, status="completed",
                                        type="code_interpreter_call")
OutputLogs = model(_r + "response_code_interpreter_tool_call.OutputLogs", "logs", type="logs")
McpCall = model(_r + "response_output_item.McpCall", "id", "arguments", "name", "server_label", type="mcp_call",
                approval_request_id=None, error=None, output=None, status=None)
ResponseUsage = model(_r + "response_usage.ResponseUsage", "input_tokens", "input_tokens_details", "output_tokens",
                      "output_tokens_details", "total_tokens")
InputTokensDetails = model(_r + "response_usage.InputTokensDetails", "cached_tokens")
OutputTokensDetails = model(_r + "response_usage.OutputTokensDetails", "reasoning_tokens")

# Anthropic
_a = "anthropic.types."
AMessage = model(_a + "message.Message", "id", "content", "model", role="assistant", stop_reason=None,
                 stop_sequence=None, type="message", usage=None)
ATextBlock = model(_a + "text_block.TextBlock", "text", citations=None, type="text")
AThinkingBlock = model(_a + "thinking_block.ThinkingBlock", "signature", "thinking", type="thinking")
ARedactedThinkingBlock = model(_a + "redacted_thinking_block.RedactedThinkingBlock", "data", type="redacted_thinking")
AToolUseBlock = model(_a + "tool_use_block.ToolUseBlock", "id", "input", "name", type="tool_use")
AServerToolUseBlock = model(_a + "server_tool_use_block.ServerToolUseBlock", "id", "input", "name",
                            type="server_tool_use")
AWebSearchToolResultBlock = model(_a + "web_search_tool_result_block.WebSearchToolResultBlock", "content",
                                  "tool_use_id", type="web_search_tool_result")
AWebSearchResultBlock = model(_a + "web_search_result_block.WebSearchResultBlock", "encrypted_content", "title", "url",
                              page_age=None, type="web_search_result")
ACitation = model(_a + "citations_web_search_result_location.CitationsWebSearchResultLocation", "cited_text",
                  "encrypted_index", "title", "url", type="web_search_result_location")
AUsage = model(_a + "usage.Usage", "input_tokens", "output_tokens", cache_creation_input_tokens=None,
               cache_read_input_tokens=None, server_tool_use=None, service_tier=None)
ARawMessageStartEvent = model(_a + "raw_message_start_event.RawMessageStartEvent", "message", type="message_start")
ARawContentBlockStartEvent = model(_a + "raw_content_block_start_event.RawContentBlockStartEvent", "content_block",
                                   "index", type="content_block_start")
ARawContentBlockDeltaEvent = model(_a + "raw_content_block_delta_event.RawContentBlockDeltaEvent", "delta", "index",
                                   type="content_block_delta")
ARawContentBlockStopEvent = model(_a + "raw_content_block_stop_event.RawContentBlockStopEvent", "index",
                                  type="content_block_stop")
ARawMessageDeltaEvent = model(_a + "raw_message_delta_event.RawMessageDeltaEvent", "delta", "usage",
                              type="message_delta")
ADelta = model(_a + "raw_message_delta_event.Delta", stop_reason=None, stop_sequence=None)
AMessageDeltaUsage = model(_a + "message_delta_usage.MessageDeltaUsage", "output_tokens", input_tokens=None)
ARawMessageStopEvent = model(_a + "raw_message_stop_event.RawMessageStopEvent", type="message_stop")
ATextDelta = model(_a + "text_delta.TextDelta", "text", type="text_delta")
AThinkingDelta = model(_a + "thinking_delta.ThinkingDelta", "thinking", type="thinking_delta")
ASignatureDelta = model(_a + "signature_delta.SignatureDelta", "signature", type="signature_delta")
AInputJSONDelta = model(_a + "input_json_delta.InputJSONDelta", "partial_json", type="input_json_delta")

# google-genai
_g = "google.genai.types."
GContent = model(_g + "Content", parts=None, role=None)
GPart = model(_g + "Part", media_resolution=None, code_execution_result=None, executable_code=None, file_data=None,
              function_call=None, function_response=None, inline_data=None, text=None, thought=None,
              thought_signature=None, video_metadata=None)
GBlob = model(_g + "Blob", data=None, display_name=None, mime_type=None)
GFunctionCall = model(_g + "FunctionCall", id=None, args=None, name=None)
GFunctionResponse = model(_g + "FunctionResponse", id=None, name=None, response=None)
GCandidate = model(_g + "Candidate", content=None, citation_metadata=None, finish_message=None, token_count=None,
                   finish_reason=None, avg_logprobs=None, grounding_metadata=None, index=None, safety_ratings=None)
GUsage = model(_g + "GenerateContentResponseUsageMetadata", cached_content_token_count=None,
               candidates_token_count=None, prompt_token_count=None, thoughts_token_count=None,
               tool_use_prompt_token_count=None, total_token_count=None)
GResponse = model(_g + "GenerateContentResponse", candidates=None, create_time=None, model_version=None,
                  prompt_feedback=None, response_id=None, usage_metadata=None)

# Mistral, Cohere, Ollama
MistralResponse = model("mistralai.models.chatcompletionresponse.ChatCompletionResponse", "id", "model", "usage",
                        "choices", object="chat.completion", created=None)
MistralChoice = model("mistralai.models.chatcompletionchoice.ChatCompletionChoice", "index", "message",
                      "finish_reason")
MistralAssistantMessage = model("mistralai.models.assistantmessage.AssistantMessage", content=None, tool_calls=None,
                                prefix=False, role="assistant")
MistralToolCall = model("mistralai.models.toolcall.ToolCall", "function", id="null", type=None, index=0)
MistralFunctionCall = model("mistralai.models.functioncall.FunctionCall", "name", "arguments")
MistralTextChunk = model("mistralai.models.textchunk.TextChunk", "text", type="text")
MistralThinkChunk = model("mistralai.models.thinkchunk.ThinkChunk", "thinking", closed=None, type="thinking")
MistralUsageInfo = model("mistralai.models.usageinfo.UsageInfo", prompt_tokens=0, completion_tokens=0, total_tokens=0)
CohereV2 = model("cohere.v2.types.v2chat_response.V2ChatResponse", "id", "finish_reason", "message", usage=None,
                 logprobs=None)
CohereMessage = model("cohere.types.assistant_message_response.AssistantMessageResponse", role="assistant",
                      tool_calls=None, tool_plan=None, content=None, citations=None)
CohereText = model("cohere.types.assistant_message_response_content_item.TextAssistantMessageResponseContentItem",
                   "text", type="text")
CohereToolCall = model("cohere.types.tool_call_v2.ToolCallV2", "id", function=None, type="function")
CohereToolCallFunction = model("cohere.types.tool_call_v2function.ToolCallV2Function", name=None, arguments=None)
CohereUsage = model("cohere.types.usage.Usage", billed_units=None, tokens=None, cached_tokens=None)
CohereBilled = model("cohere.types.usage_billed_units.UsageBilledUnits", input_tokens=None, output_tokens=None)
CohereTokens = model("cohere.types.usage_tokens.UsageTokens", input_tokens=None, output_tokens=None)
OllamaChat = model("ollama._types.ChatResponse", model=None, created_at=None, done=None, done_reason=None,
                   total_duration=None, load_duration=None, prompt_eval_count=None, prompt_eval_duration=None,
                   eval_count=None, eval_duration=None, message=None)
OllamaMessage = model("ollama._types.Message", "role", content=None, thinking=None, images=None, tool_name=None,
                      tool_calls=None)
OllamaToolCall = model("ollama._types.ToolCall", "function")
OllamaFunction = model("ollama._types.Function", "name", "arguments")

# Inspect AI
_i = "inspect_ai.model._chat_message."
ChatMessageSystem = model(_i + "ChatMessageSystem", "content", id=None, source=None, metadata=None, role="system")
ChatMessageUser = model(_i + "ChatMessageUser", "content", id=None, source=None, metadata=None, role="user",
                        tool_call_id=None)
ChatMessageAssistant = model(_i + "ChatMessageAssistant", "content", id=None, source=None, metadata=None,
                             role="assistant", tool_calls=None, model=None)
ChatMessageTool = model(_i + "ChatMessageTool", "content", id=None, source=None, metadata=None, role="tool",
                        tool_call_id=None, function=None, error=None)
InspectToolCall = data("inspect_ai.tool._tool_call.ToolCall", "id", "function", "arguments", parse_error=None,
                       view=None, type="function")
InspectToolCallError = data("inspect_ai.tool._tool_call.ToolCallError", "type", "message")
ContentText = model("inspect_ai._util.content.ContentText", "text", type="text", refusal=None, citations=None)
ContentReasoning = model("inspect_ai._util.content.ContentReasoning", "reasoning", type="reasoning", summary=None,
                         signature=None, redacted=False)
ContentImage = model("inspect_ai._util.content.ContentImage", "image", type="image", detail="auto")
ModelOutput = model("inspect_ai.model._model_output.ModelOutput", model="", choices=[], completion="", usage=None,
                    time=None, metadata=None, error=None)
ChatCompletionChoice = model("inspect_ai.model._model_output.ChatCompletionChoice", "message", stop_reason="unknown",
                             logprobs=None)
ModelUsage = model("inspect_ai.model._model_output.ModelUsage", input_tokens=0, output_tokens=0, total_tokens=0,
                   input_tokens_cache_write=None, input_tokens_cache_read=None, reasoning_tokens=None)

# LangChain
_l = "langchain_core."
LCSystem = model(_l + "messages.system.SystemMessage", "content", additional_kwargs={}, response_metadata={},
                 type="system", name=None, id=None)
LCHuman = model(_l + "messages.human.HumanMessage", "content", additional_kwargs={}, response_metadata={},
                type="human", name=None, id=None)
LCAI = model(_l + "messages.ai.AIMessage", "content", additional_kwargs={}, response_metadata={}, type="ai",
             name=None, id=None, tool_calls=[], invalid_tool_calls=[], usage_metadata=None)
LCAIChunk = model(_l + "messages.ai.AIMessageChunk", "content", additional_kwargs={}, response_metadata={},
                  type="AIMessageChunk", name=None, id=None, tool_calls=[], invalid_tool_calls=[],
                  usage_metadata=None, tool_call_chunks=[])
LCTool = model(_l + "messages.tool.ToolMessage", "content", "tool_call_id", additional_kwargs={},
               response_metadata={}, type="tool", name=None, id=None, artifact=None, status="success")
LCChatGeneration = model(_l + "outputs.chat_generation.ChatGeneration", "message", text="", generation_info=None,
                         type="ChatGeneration")
LCLLMResult = model(_l + "outputs.llm_result.LLMResult", "generations", llm_output=None, run=None, type="LLMResult")
LCChatPromptValue = model(_l + "prompt_values.ChatPromptValue", "messages", type="ChatPromptValue")

# LlamaIndex
_li = "llama_index.core.base.llms.types."
LITextBlock = model(_li + "TextBlock", "text", block_type="text")
LIImageBlock = model(_li + "ImageBlock", block_type="image", image=None, path=None, url=None, image_mimetype=None,
                     detail=None)
LIThinkingBlock = model(_li + "ThinkingBlock", block_type="thinking", content=None, num_tokens=None,
                        additional_information={})
LIToolCallBlock = model(_li + "ToolCallBlock", "tool_name", block_type="tool_call", tool_call_id=None, tool_kwargs={})
LIChatMessage = model(_li + "ChatMessage", role="user", additional_kwargs={}, blocks=[])
LIChatResponse = model(_li + "ChatResponse", "message", raw=None, delta=None, logprobs=None, additional_kwargs={})
LICompletionResponse = model(_li + "CompletionResponse", "text", additional_kwargs={}, raw=None, logprobs=None,
                             delta=None)

# smolagents
_s = "smolagents.models."
SAFunction = data(_s + "ChatMessageToolCallFunction", "arguments", "name", description=None)
SAToolCall = data(_s + "ChatMessageToolCall", "function", "id", "type")
SAChatMessage = data(_s + "ChatMessage", "role", content=None, tool_calls=None, raw=None, token_usage=None)
SATokenUsage = data("smolagents.monitoring.TokenUsage", "input_tokens", "output_tokens", total_tokens=None)

# verifiers
_v = "verifiers.v1.types."
VSystem = model(_v + "SystemMessage", "content", role="system")
VUser = model(_v + "UserMessage", "content", role="user")
VAssistant = model(_v + "AssistantMessage", content=None, reasoning_content=None, tool_calls=None,
                   provider_state=None, role="assistant")
VTool = model(_v + "ToolMessage", "tool_call_id", "content", name=None, role="tool")
VToolCall = model(_v + "ToolCall", "id", "name", "arguments", type="function", namespace=None)
VUsage = model(_v + "Usage", "prompt_tokens", "completion_tokens", cached_input_tokens=None, reasoning_tokens=None,
               cost=None)
VTurnTokens = model(_v + "TurnTokens", prompt_ids=[], completion_ids=[], completion_logprobs=[])
VResponse = model(_v + "Response", "id", "created", "model", "message", "finish_reason", usage=None, tokens=None)

# vLLM, verl, others
VLLMCompletionOutput = data("vllm.outputs.CompletionOutput", "index", "text", "token_ids", cumulative_logprob=None,
                            logprobs=None, finish_reason=None, stop_reason=None, lora_request=None)
VLLMRequestOutput = data("vllm.outputs.RequestOutput", "request_id", "prompt", "prompt_token_ids", prompt_logprobs=None,
                         outputs=[], finished=True, metrics=None, lora_request=None, num_cached_tokens=None)
AgentLoopMetrics = model("verl.experimental.agent_loop.agent_loop.AgentLoopMetrics", generate_sequences=0.0,
                         tool_calls=0.0)
AgentLoopOutput = model("verl.experimental.agent_loop.agent_loop.AgentLoopOutput", "prompt_ids", "response_ids",
                        "response_mask", response_logprobs=None, multi_modal_data=None, reward_score=None,
                        num_turns=0, metrics=None, extra_fields={})
TokenOutput = model("verl.workers.rollout.replica.TokenOutput", "token_ids", log_probs=None, routed_experts=None,
                    stop_reason=None)
TextGenerationOutput = data("huggingface_hub.inference._generated.types.text_generation.TextGenerationOutput",
                            "generated_text", details=None)
TGIDetails = data("huggingface_hub.inference._generated.types.text_generation.TextGenerationOutputDetails",
                  "finish_reason", "generated_tokens", prefill=[], tokens=[], best_of_sequences=None, seed=None)
DSPyPrediction = data("dspy.primitives.prediction.Prediction", "_store", _completions=None, _lm_usage=None)
LiteLLMModelResponse = model("litellm.types.utils.ModelResponse", "id", "choices", "created", "model",
                             object="chat.completion", system_fingerprint=None, usage=None)
LiteLLMChoices = model("litellm.types.utils.Choices", "finish_reason", "index", "message",
                       provider_specific_fields=None)
LiteLLMMessage = model("litellm.types.utils.Message", content=None, role="assistant", tool_calls=None,
                       function_call=None, reasoning_content=None, thinking_blocks=None, provider_specific_fields=None)
LiteLLMUsage = model("litellm.types.utils.Usage", "completion_tokens", "prompt_tokens", "total_tokens",
                     completion_tokens_details=None, prompt_tokens_details=None, cache_creation_input_tokens=None,
                     cache_read_input_tokens=None)
HarmonyRole = str
HarmonyAuthor = model("openai_harmony.Author", "role", name=None)
HarmonyTextContent = model("openai_harmony.TextContent", "text", type="text")
HarmonyMessage = data("openai_harmony.Message", "author", content=[], channel=None, recipient=None,
                      content_type=None)
GenerateResult = namedtuple("GenerateResult", ["text", "prompt_tokens", "completion_tokens", "finish_reason"])


class LMReply(NamedTuple):
    message: Any
    usage: Any
    finish_reason: Any = None


@dataclasses.dataclass
class RolloutResult:
    text: str
    token_ids: list
    logprobs: list
    finish_reason: str = "stop"


def chunk(delta=None, finish=None, usage=None, id="chatcmpl-s1", model="gpt-4o-mini", choices=None):
    if choices is None:
        choices = [ChunkChoice(delta=delta if delta is not None else ChoiceDelta(), finish_reason=finish, index=0)]
    return ChatCompletionChunk(id=id, choices=choices, created=1755600000, model=model, usage=usage)


def completion(message, finish="stop", usage=None, model="gpt-4o-2024-08-06", id="chatcmpl-AbC", logprobs=None):
    return ChatCompletion(id=id, created=1755600001, model=model, usage=usage,
                          choices=[Choice(finish_reason=finish, index=0, message=message, logprobs=logprobs)])


# tools' results
@dataclasses.dataclass
class ExecResult:
    success: bool
    returncode: int
    stdout: str
    stderr: str


@dataclasses.dataclass
class SearchResults:
    query: str
    hits: list
    total: int


class HttpResponse(BaseModel):
    status_code: int
    text: str


class RetrieverOutput(BaseModel):
    documents: list
    scores: list
