"""Judges a tool's result: odd if it holds nothing, or is an error in data.

One table has the names; each row is named for what it means, with its sources. Names are compared in lower case without
punctuation, so `total_count`, `totalCount` and `total-count` are one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final, TypeAlias

import orjson

MAX_PARSED: Final = 16 * 1024
"""A longer result holds something, and an error in data is shorter."""
_MAX_LITERAL: Final = 4096
_MAX_WORDS: Final = 500
"""Words of a longer text are about something else."""
_MAX_DEPTH: Final = 5
_MAX_ITEMS: Final = 64

_NAMES: Final = {
    # MCP (CallToolResult), Anthropic (tool_result), Elasticsearch, Docker, HTTP clients.
    "failed if true": "iserror haserror errored timedout timeout oomkilled",
    # JSON-RPC, GraphQL, Google, AWS, OpenAI, Stripe, MediaWiki, OAuth, Spring, SOAP, Jupyter, E2B.
    "error": (
        "error errors err exception fault faultstring errormessage errormsg errmsg errordescription errordetail "
        "errordetails errorinfo ename evalue traceback stacktrace lasterror"
    ),
    # WeChat, Baidu, Facebook, POSIX.
    "number of an error": "errcode errno errorcode",
    # Slack, Cloudflare, SendGrid.
    "failed if false": "success ok succeeded issuccess issuccessful successful",
    # RFC 9457, HTTP clients, boto3, OpenWeatherMap, google.rpc.Status.
    "HTTP status": "status statuscode httpstatus httpstatuscode httpcode cod responsecode code",
    # NewsAPI, Google Maps, JSend, Docker, Kubernetes.
    "status": "state result outcome type kind outputtype",
    # POSIX, subprocess, Docker, GitHub Actions.
    "exit code": "exitcode returncode exitstatus retcode rc",
    # Serper, Tavily, Exa, Brave, Bing, Elasticsearch, Solr, Pinecone, Qdrant, Chroma, OpenAlex, Reddit, PubMed, MCP.
    "result": (
        "results result data items hits documents docs matches organic organicresults rows records entries search "
        "edges nodes content contents contexts context passages chunks snippets articles papers webpages value values "
        "response responses answer answers text output outputs stdout body ids idlist list objects files candidates "
        "pages page points children found bindings entry feed retrieved observation html markdown completion summary "
        "places products businesses images videos news events messages sourcenodes table lines stderr structuredcontent"
    ),
    "message": (
        "message msg detail details description note info reason warning hint suggestion statustext stderr "
        "displaymessage usermessage instance"
    ),
    "count": "total count n num size length rowcount found dist nbpages numpages pagecount totalpages itemcount",
    # These describe the request, the answer's pages and its cost, whatever they hold.
    "about": (
        "head vars searchparameters searchmetadata searchinformation searchinfo requestparams requestinfo params "
        "parameters responsemetadata responseheader header headers meta metadata pageinfo pagination paging shards "
        "usage querycontext queries region coverage facets facetcounts htmlattributions costdollars costs credits "
        "timing timings profile schema messagetype messageversion columns columnnames fields fieldnames included url "
        "urls errorlist warninglist debug links warnings"
    ),
    "echo": (
        "query q searchterms searchterm searchquery keyword keywords prompt input question request command cmd args "
        "page perpage pagesize pagenumber hitsperpage itemsperpage limit offset start end cursor next previous prev "
        "after before nextpage hasmore hasnextpage hasnext took tookms elapsed duration latency version apiversion "
        "jsonrpc object etag regioncode lang language locale namespace index collection database engine model "
        "provider source path uri file filename directory cwd incompleteresults batchcomplete maxscore "
        "exhaustivenbhits numfoundexact outof searchcutoff quotamax quotaremaining retmax retstart querytranslation "
        "relation relevance geofilter modhash truncated istruncated cached fromcache followupquestions "
        "autopromptstring resolvedsearchtype timestamp created createdat servedby class isfinal partial tool toolname "
        "toolcallid callid role"
    ),
}
_MEANINGS: Final = {name: meaning for meaning, names in _NAMES.items() for name in names.split()}
_ABOUT: Final = re.compile(
    r"(?:request|response|trace|search|query|correlation|session|scroll|pit)id|(?:search|query|request|response"
    r"|processing|elapsed|execution|wall)?time(?:ms|seconds|s)?|.{1,24}(?:timems|tookms|millis|latency|durationms"
    r"|seconds)|.*token|documentationurl|.*(?:url|uri)|quota.*|credits.*|exhaustive.*"
)
"""More names of what describes a request."""
_TOTAL: Final = re.compile(
    # Elasticsearch, Solr, Algolia, Meilisearch, GitHub, NewsAPI, Google CSE, Bing, S3, OpenAlex.
    r"(?:.*total|num|nb|number|estimated|approximate)(?:total|estimated|of)*(?:results|hits|count|records|items"
    r"|match(?:es)?|found|docs|documents)|(?:results?|hits?|keys?|documents?|match)count"
)

_NO_ERROR: Final = frozenset(
    {"", "none", "null", "nil", "no", "false", "ok", "0", "no error", "no errors", "n/a", "success"}
)
_FAILED: Final = re.compile("error|errored|exception|timeout|timedout|requestdenied|overquerylimit|invalidrequest")
_FAILED_ALONE: Final = re.compile("err|fail|failed|failure|notfound|denied|forbidden|unauthorized|unavailable|aborted")
"""A job of this state may be what was asked for: it is odd if nothing else is there."""
_JSEND: Final = frozenset({"status", "data", "message", "code"})
"""With such a status, the data is a list of errors. JSend."""
_OF_ENVIRONMENTS: Final = frozenset({"reward", "done", "obs", "observation", "terminated", "truncated", "score", "won"})
"""A step without success is ordinary. Gymnasium, TextWorld, WebShop."""
_OF_REPORTS: Final = frozenset({"line", "row", "ruleid", "severity", "rule", "column"})
"""Errors with a place in a text are a linter's result."""
_OUTPUTS: Final = ("stdout", "output", "out", "result")

_NOUNS: Final = (
    "results?|match(?:es)?|hits?|documents?|docs|records?|rows?|items?|entr(?:y|ies)|data|files?|articles?|papers?"
    "|stud(?:y|ies)|pages?|products?|answers?|information|content|output|passages?|snippets?|images?|videos?|messages?"
    "|emails?|events?|users?|flights?|hotels?|places|nodes|sources?|references?|occurrences?|response|objects?"
    "|elements?|text"
)
_WORD: Final = (
    r"(?!(?:found|in|of|to|is|was|are|were|or|and|issues?|errors?|problems?|warnings?|conflicts?|changes?)\b)[\w'-]+"
)
_RESEARCH: Final = (
    "stud(?:y|ies)|papers?|researchers?|authors?|scientists?|trials?|surveys?|investigat(?:ion|ors?)|experiments?"
)
_NOT: Final = "(?:could not|couldn'?t|cannot|can'?t|can not|did not|didn'?t|was unable to|were unable to|unable to)"
_REASONS: Final = (
    "bad request|unauthorized|payment required|forbidden|not found|method not allowed|request timeout|conflict|gone"
    "|unprocessable|too many requests|internal (?:server )?error|not implemented|bad gateway|service (?:temporarily )?"
    "unavailable|gateway time-?out|(?:client|server) error"
)
_END: Final = r"\s*(?:[.!:;,…(\n\"'`\])-]|$)"
_ERROR_AT_START: Final = re.compile(
    # Python, Java, JavaScript, Go, Rust, C, npm, git, curl, apt; LangChain's, smolagents', OpenAI's and MCP's tools.
    r"traceback \(most recent call last\)|exception in thread|thread '[^']*' panicked|node:internal/|uncaught \w*error"
    r"|(?:fatal|panic|critical)(?: error)?: |file \"[^\"]*\", line \d+|upstream (?:connect|request) |npm err"
    r"|curl: \(\d+\)|segmentation fault|ora-\d{5}|(?:an? |the |internal |unexpected |unhandled |tool |api |http "
    r"|server |execution |runtime |system )*(?:error|exception)(?: code)?(?:[ :]*\d{3,5})?\s*[:!\]>]"
    r"|[\w./+-]{1,40}: (?:fatal )?error: |(?:error|time-?out|failed|failure)\W*$|error \d+ \(|(?:error"
    r"|exception) (?:executing|calling|running|while|when|in|during|occurred|parsing|fetching|reading|opening"
    r"|processing|performing|accessing|connecting|loading|sending|getting|retrieving|invoking|from|on line|at)\b"
    r"|an? (?:\w+ )?(?:error|exception) (?:has )?occurred|[\w.]{0,120}[a-z_](?:error|exception|expired"
    r"|interrupt)(?:\(.{0,80}?\))?\s*(?::|\(|$)"
    # A compiler's message below the line and its mark.
    r"|\S+:\d+:\d+: (?:fatal )?error:|(?:[^\n]*\n){1,3}\s*[\^~]+\s*\n\w*(?:error|exception)\b"
    rf"|(?:http(?:/\d(?:\.\d)?)?(?: error| status)?(?: code)?:? ?|error ?:? ?"
    rf"|status(?: code)?:? ?)?[45]\d\d\s*[:,-]?\s*(?:{_REASONS})\b|http(?: error| status)?(?: code)?:? ?[45]\d\d(?:\W"
    rf"|$)(?! (?:is|means|error code)\b)"
    r"|<?(?:!doctype|html).{0,300}?<title>\s*(?:error|[45]\d\d\b)",
    re.IGNORECASE | re.DOTALL,
)
_ERROR_WORDS: Final = re.compile(
    rf"(?:{_REASONS}|rate.?limit\w*(?: exceeded| reached)?|permission denied|access denied|quota exceeded|out of memory"
    r"|connection (?:refused|reset|timed out|error|aborted|closed|failed)|deadline exceeded|not (?:authenticated"
    rf"|authorized|allowed|permitted|supported|available)|bad credentials|request failed)\s*(?:[.!:;\n-]|\(\d|$)"
    rf"|killed$"
    r"|(?:[\w.'/-]+ ){0,4}(?:timed out|rate limit exceeded|quota exceeded)\b|time-?out (?:of|after|exceeded|reached"
    r"|error|while)|(?:api|request|query|task|tool|call|download|navigation|execution|command|search|operation|build"
    rf"|lookup)(?: \w+)? failed\b|failed (?:to|with|because|due|after|while)\b|fail(?:ed|ure)[:!]|(?:sorry"
    rf"|unfortunately)\b.{{0,40}}\b{_NOT} |(?:i |we |it )?(?:{_NOT}|failed to) (?!(?:be|is|are|was)\b)(?-i:[a-z])\w*"
    r"|(?:unknown|no such|unrecognized|unsupported|undefined) (?:tool|function|command|action|argument|option|file"
    r"|table|directory|host|method|key|user|column|module|api)\b|invalid (?:\w+ )?(?:key|token|session|request"
    r"|argument|arguments|input|json|query|url|syntax|credentials|parameter|parameters|credential|action|command"
    r"|path)\b|missing (?:required|argument|parameter)\b|(?:ba|z|da|k)?sh: [^\n]{0,100}not found"
    r"|[^\n]{0,200}(?:[:\]] (?:can't open |cannot \w+ '|command not found|no such file or directory|not a directory"
    r"|is a directory|permission denied"
    r"|syntax error near|cannot (?:access|open|stat) )|is not recognized as an internal|unable to locate package)",
    re.IGNORECASE,
)
_EMPTY_WORDS: Final = re.compile(
    # LangChain's and LlamaIndex' retrievers and search tools, smolagents' DuckDuckGo, ripgrep's and psql's front ends.
    # Research without results is a text about it.
    rf"(?!(?:(?!no |0 |zero |found )[\w'-]+ ){{0,3}}?(?:{_RESEARCH})\b)(?:(?:sorry,? "
    rf"|unfortunately,? )?(?:there (?:are|were|is|was) (?:currently )?)?(?:no|zero|0)\s+(?:{_WORD}\s+){{0,4}}?"
    rf"(?:{_NOUNS})(?:\s+(?:were|was|are|is|have been|has been|could be))?(?:\s+(?:found|returned|available|retrieved"
    rf"|match\w*|exist\w*|fetched|located|loaded|to (?:display|show|return)|yet|here))?(?:{_END}|\s+(?:for|in|that"
    rf"|with|on|at|about|from|of|your|the|this|matching|containing|named|called|by|under|within|between|since) )"
    rf"|(?:[\w'-]+ ){{0,4}}?(?:found|returned|returns|yielded|retrieved|matched|produced|gave|has|have|contains?|got"
    rf"|showing)[: ]+(?:no|0|zero)(?: [\w-]+){{0,2}}? (?:{_NOUNS})\b|(?:i )?found nothing{_END}"
    rf"|(?:sorry,? )?nothing (?:was |were )?(?:found|matched|returned|available|relevant|to (?:show|display|return))"
    rf"|none (?:was |were )?found|empty (?:response|result|output|file|page|list|string|set){_END}"
    r"|your search\b.{0,120}did(?: not|n't) match|(?:[\w'.-]+ ){1,4}(?:did not|didn't|does not|doesn't) (?:match"
    rf"|return|find|have|contain|yield) any\b|(?:[\w'\"`./-]+ ){{1,5}}?(?:was |were )?not found{_END}"
    r"|(?:none|null|nil|undefined|n/a|nan|no output|no content|empty|no matches?)\W*$|.*\(0 rows\)\s*$|0 rows\))",
    re.IGNORECASE | re.DOTALL,
)

_Member: TypeAlias = tuple[str, str, Any]
"""A member of an object: its name without punctuation, the meaning of the name, or "", and its value."""


def is_odd_result(value: Any) -> bool:
    """Return True if a tool's result holds nothing, or is an error in data.

    Args:
        value: `output.value`, or the value of its JSON.
    """
    try:
        return _is_odd(value, 0)
    except RecursionError:
        # It is nested deeply.
        return False


@lru_cache(4096)
def _named(key: str) -> tuple[str, str]:
    """Return a name without punctuation, and its meaning, or ""."""
    name = re.sub(r"[^a-z0-9]", "", key.lower())
    meaning = _MEANINGS.get(name) or ("about" if _ABOUT.fullmatch(name) else "")
    return name, meaning or ("total" if _TOTAL.fullmatch(name) else "")


def _is_odd(value: Any, depth: int, *, is_listed: bool = False) -> bool:
    if value is None or isinstance(value, str):
        return value is None or _is_odd_text(value, depth)
    if depth > _MAX_DEPTH or not isinstance(value, (dict, list, tuple, set)):
        return False
    if isinstance(value, dict):
        if isinstance(value.get("properties"), dict):
            # A JSON schema has names only.
            return False
        members = [(*_named(str(key)), item) for key, item in value.items()]
        return _is_failed(members, is_listed) or _holds_nothing(members, depth, is_listed)
    return _is_odd_list(list(value)[:_MAX_ITEMS], depth)


def _is_odd_text(text: str, depth: int) -> bool:
    """Return True for a text of nothing, of an error, or of JSON that is odd."""
    start = text[:MAX_PARSED].strip()
    if not start.strip("\"'()[]{}") or start == "null":
        return True
    if start[0] in '{["' and len(text) <= MAX_PARSED:
        parsed = _parsed(start)
        if parsed is not None and parsed != text:
            return _is_odd(parsed, depth + 1)
    start = start[:_MAX_WORDS].replace("\u2019", "'").lstrip("\"'`*#<>[(-❌⚠️🚫 \t\r\n") or start
    if _ERROR_AT_START.match(start):
        return True
    is_short = len(text) <= _MAX_WORDS
    return is_short and (_EMPTY_WORDS.match(start) is not None or _ERROR_WORDS.match(start) is not None)


def _parsed(text: str) -> Any:
    with suppress(ValueError):
        return orjson.loads(text)
    # The text of a dict.
    with suppress(ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return ast.literal_eval(text) if len(text) <= _MAX_LITERAL and text[0] != '"' else None
    return None


def _is_odd_list(items: Sequence[Any], depth: int) -> bool:
    texts = [each.get("text") for each in items if isinstance(each, dict) and each.get("type") == "text"]
    if items and len(texts) == len(items):
        # The parts of a message.
        return _is_odd_text("\n".join(str(text or "") for text in texts), depth)
    if len(items) == 1 and isinstance(items[0], (list, str)):
        # A null in a row is a value.
        return not (isinstance(items[0], list) and None in items[0]) and _is_odd(items[0], depth + 1)
    return all(
        not each.strip() if isinstance(each, str) else _is_odd(each, depth + 1, is_listed=True) for each in items
    )


def _is_aside(member: _Member) -> bool:
    """Return True for a member that describes a request or an answer, and is none of its content."""
    _, meaning, item = member
    if meaning == "message":
        return isinstance(item, str) or item is None
    if meaning in ("echo", "HTTP status", "status"):
        return not isinstance(item, (dict, list))
    return meaning not in ("", "result")


def _is_nothing(item: Any) -> bool:
    """Return True for null, blank texts, and lists and objects of nothing else."""
    if isinstance(item, dict):
        return all(map(_is_nothing, item.values()))
    if isinstance(item, list):
        # A null in a row is a value.
        return all(each is not None and _is_nothing(each) for each in item)
    return item is None or (isinstance(item, str) and item.strip() in ("", "[]", "{}", "null"))


def _is_failed(members: Sequence[_Member], is_listed: bool) -> bool:
    """Return True if an object is an error, or wraps one."""
    names = {name: item for name, _, item in members}
    content = [
        item for name, meaning, item in members if not _is_aside((name, meaning, item)) and not _is_nothing(item)
    ]
    has_message = any(meaning == "message" and isinstance(item, str) for _, meaning, item in members)
    is_bare = not content or _JSEND.issuperset(names)
    for name, meaning, item in members:
        is_word = meaning in ("status", "HTTP status") or name == "result"
        if meaning == "failed if true":
            failed = item is True
        elif meaning == "error":
            failed = _is_error(name, item, is_bare=not content)
        elif meaning == "number of an error":
            failed = type(item) is int and item != 0
        elif meaning == "failed if false":
            failed = (item is False or item == "false") and _OF_ENVIRONMENTS.isdisjoint(names)
        elif meaning == "HTTP status":
            failed = _is_failed_status(name, item, has_message=has_message)
        elif meaning == "exit code":
            failed = type(item) is int and item != 0 and not _has_report(item, names)
        else:
            failed = name == "detail" and bool(item) and (isinstance(item, list) or len(members) == 1)
        if failed or (is_word and not is_listed and _is_failed_word(item, is_bare=is_bare)):
            return True
    # boto3 has the status next to the content, others wrap all of it.
    inner = [names.get("responsemetadata"), *(content if len(content) == 1 else ())]
    wrapped = [each for each in inner if isinstance(each, dict)]
    return any(_is_failed([(*_named(str(key)), item) for key, item in each.items()], is_listed) for each in wrapped)


def _holds_nothing(members: Sequence[_Member], depth: int, is_listed: bool) -> bool:
    """Return True if all content of an object is nothing, or words for nothing."""
    names = {name: item for name, _, item in members}
    if isinstance(names.get("type"), str) and (0 in _list(names.get("shape")) or names.get("length") == 0):
        # An array, a table or bytes, as they are recorded.
        return True
    if any(map(_is_done, members)):
        return False
    content = [member for member in members if not _is_aside(member)]
    left = [member for member in content if not _is_nothing(member[2])]
    if left:
        return (
            len(left) == 1
            and (left[0][1] == "result" or isinstance(left[0][2], dict))
            and _is_odd(left[0][2], depth + 1)
        )
    if content:
        # An action that worked may have nothing to say.
        is_known = any(item is not None or meaning == "result" for _, meaning, item in content)
        return is_known and (any(item is not None for _, _, item in content) or not any(map(_is_success, members)))
    totals = [item for _, meaning, item in members if meaning == "total"]
    messages = [item for _, meaning, item in members if meaning == "message" and item]
    if len(messages) == 1 and not is_listed and not totals:
        return _is_odd_text(messages[0], depth)
    return not members or (bool(totals) and all(str(item) == "0" for item in totals))


def _is_error(name: str, item: Any, *, is_bare: bool) -> bool:
    if isinstance(item, str):
        return item.strip().lower() not in _NO_ERROR
    if isinstance(item, dict):
        has_text = any(isinstance(each, str) and each.strip() for each in item.values())
        return has_text or "code" in item or (name == "errors" and is_bare and bool(item))
    if isinstance(item, list):
        is_report = any(_OF_REPORTS & {str(key).lower() for key in each} for each in item if isinstance(each, dict))
        return bool(item) and is_bare and not is_report and all(isinstance(each, (str, dict)) for each in item)
    return item is True or (type(item) is int and 400 <= item < 600 and is_bare)


def _is_failed_status(name: str, item: Any, *, has_message: bool) -> bool:
    number = int(item) if isinstance(item, str) and len(item) == 3 and item.isdecimal() else item
    return type(number) is int and 400 <= number < 600 and (name != "code" or has_message)


def _is_failed_word(item: Any, *, is_bare: bool) -> bool:
    word = re.sub(r"[^a-z]", "", item[:32].lower()) if isinstance(item, str) else ""
    return _FAILED.fullmatch(word) is not None or (is_bare and _FAILED_ALONE.fullmatch(word) is not None)


def _has_report(code: int, names: Mapping[str, Any]) -> bool:
    """Return True if a program that ended with 1 has output, as test runners have."""
    said = any(isinstance(text := names.get(name), str) and text.strip() for name in _OUTPUTS)
    return code == 1 and said and not str(names.get("stderr") or "").strip()


def _is_done(member: _Member) -> bool:
    """Return True for a success that needs no content: exit code 0, HTTP 201 to 299, rows that were changed."""
    name, meaning, item = member
    is_done = (meaning == "exit code" and item == 0) or (meaning == "HTTP status" and item in range(201, 300))
    return type(item) is int and (is_done or "affected" in name or (name == "rowcount" and item > 0))


def _is_success(member: _Member) -> bool:
    _, meaning, item = member
    return meaning in ("failed if false", "HTTP status") and (item is True or item in (0, 200))


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()
