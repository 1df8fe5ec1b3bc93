"""Judges a tool's result: odd if it holds nothing, or is an error in data.

One table has the names and the words; each row is named for what it means, with its sources. Names are compared in
lower case without punctuation, so `total_count`, `totalCount` and `total-count` are one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final, NamedTuple

import orjson

MAX_PARSED: Final = 16 * 1024
"""A longer result holds something, and an error in data is shorter."""
_MAX_LITERAL: Final = 4096
_MAX_WORDS: Final = 500
"""Words of a longer text are about something else."""
_MAX_DEPTH: Final = 8
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
_SUCCESS: Final = frozenset({"ok", "success", "successful", "succeeded", "done", "completed", "complete", "200"})
_FAILED: Final = frozenset(
    {"error", "errored", "exception", "timeout", "timedout", "requestdenied", "overquerylimit", "invalidrequest"}
)
_FAILED_ALONE: Final = frozenset(
    {"failed", "failure", "fail", "err", "notfound", "denied", "forbidden", "unauthorized", "unavailable", "aborted"}
)
"""A job of this state may be what was asked for: it is odd if nothing else is there."""
_JSEND: Final = frozenset({"status", "data", "message", "code"})
"""With such a status, the data is a list of errors. JSend."""
_POSTGREST: Final = frozenset({"code", "details", "hint", "message"})
_ERROR_CODE: Final = re.compile(
    r"error|invalid|fail|denied|notfound|not_found|unauthor|exceed|unavailable|missing|forbidden|expired|exception",
    re.I,
)
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


class _Member(NamedTuple):
    """A member of an object: its name without punctuation, the meaning of the name (or ""), and its value."""

    name: str
    meaning: str
    item: Any

    @property
    def is_aside(self) -> bool:
        """True if it describes a request or an answer, and is none of its content."""
        if self.meaning == "echo":
            return not isinstance(self.item, (dict, list))
        if self.meaning == "message":
            return isinstance(self.item, str) or self.item is None
        if self.meaning in ("HTTP status", "status"):
            return not isinstance(self.item, (dict, list))
        return self.meaning not in ("", "result")


def is_odd_result(value: Any) -> bool:
    """Return True if a tool's result holds nothing, or is an error in data.

    Args:
        value: `output.value`, or the value of its JSON.
    """
    return _Judge().is_odd(value)


@lru_cache(4096)
def _named(key: str) -> tuple[str, str]:
    name = re.sub(r"[^a-z0-9]", "", key.lower())
    meaning = _MEANINGS.get(name) or ("about" if _ABOUT.fullmatch(name) else "")
    return name, meaning or ("total" if _TOTAL.fullmatch(name) else "")


def _members(value: Mapping[Any, Any]) -> list[_Member]:
    return [_Member(*_named(str(key)), item) for key, item in value.items()]


def _parsed(text: str) -> Any:
    with suppress(ValueError):
        return orjson.loads(text)
    # The text of a dict.
    with suppress(ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return ast.literal_eval(text) if len(text) <= _MAX_LITERAL and text[0] != '"' else None
    return None


class _Judge:
    """Judges one result; the answers are kept, since rules ask for the same value several times."""

    def __init__(self) -> None:
        self._nothing: dict[int, tuple[Any, bool]] = {}
        self._odd: dict[int, tuple[Any, bool]] = {}
        self._depth = 0

    def is_odd_text(self, text: str) -> bool:
        """Return True for a text of nothing, of an error, or of JSON that is odd."""
        start = text[:MAX_PARSED].strip()
        if not start.strip("\"'()[]{}") or start == "null":
            return True
        if start[0] in '{["' and len(text) <= MAX_PARSED:
            parsed = _parsed(start)
            if parsed is not None and parsed != text:
                return self.is_odd(parsed)
        start = start[:_MAX_WORDS].replace("\u2019", "'").lstrip("\"'`*#<>[(-❌⚠️🚫 \t\r\n") or start
        if _ERROR_AT_START.match(start):
            return True
        is_short = len(text) <= _MAX_WORDS
        return is_short and (_EMPTY_WORDS.match(start) is not None or _ERROR_WORDS.match(start) is not None)

    def is_odd(self, value: Any, *, is_listed: bool = False) -> bool:
        """Return True for a value of nothing, or an error in data."""
        if value is None or isinstance(value, str):
            return value is None or self.is_odd_text(value)
        if not isinstance(value, (dict, list, tuple, set)):
            return False
        if isinstance(value, dict):
            return self._once(self._odd, value, lambda: self._is_odd_object(_members(value), is_listed))
        return self._once(self._odd, value, lambda: self._is_odd_list(list(value)))

    def _once(self, known: dict[int, tuple[Any, bool]], value: Any, judge: Callable[[], bool]) -> bool:
        """Judge a value once; return False for one that is too deep."""
        if id(value) not in known:
            known[id(value)] = value, False
            self._depth += 1
            if self._depth < _MAX_DEPTH:
                known[id(value)] = value, judge()
            self._depth -= 1
        return known[id(value)][1]

    def _is_odd_list(self, items: Sequence[Any]) -> bool:
        texts = [each.get("text") for each in items if isinstance(each, dict) and each.get("type") == "text"]
        if items and len(texts) == len(items):
            # The parts of a message.
            return self.is_odd_text("\n".join(str(text or "") for text in texts))
        if len(items) > 1 and isinstance(items[0], str) and all(each == [] for each in items[1:]):
            # OpenSearch: the query, and lists.
            return True
        if len(items) == 1 and isinstance(items[0], (list, str)):
            # A null in a row is a value.
            return not (isinstance(items[0], list) and None in items[0]) and self.is_odd(items[0])
        return all(
            not each.strip() if isinstance(each, str) else self.is_odd(each, is_listed=True)
            for each in items[:_MAX_ITEMS]
        )

    def _is_odd_object(self, members: Sequence[_Member], is_listed: bool) -> bool:
        return self._is_failed(members, is_listed) or self._holds_nothing(members, is_listed)

    def _is_failed(self, members: Sequence[_Member], is_listed: bool) -> bool:
        """Return True if an object is an error, or wraps one."""
        names = {each.name: each.item for each in members}
        if _is_schema(names):
            return False
        content = [each for each in members if not each.is_aside and not self._is_nothing(each.item)]
        is_jsend = _JSEND.issuperset(names)
        has_message = any(each.meaning == "message" and isinstance(each.item, str) for each in members)
        for name, meaning, item in members:
            if meaning == "failed if true":
                failed = item is True
            elif meaning == "error":
                failed = _is_error(name, item, is_bare=not content)
            elif meaning == "number of an error":
                failed = type(item) is int and item != 0
            elif meaning == "failed if false":
                failed = (item is False or item == "false") and _OF_ENVIRONMENTS.isdisjoint(names)
            elif meaning == "HTTP status":
                failed = _is_failed_status(name, item, has_message=has_message, is_bare=not content)
                # PostgREST has a SQLSTATE, which is a few letters or digits.
                failed = failed or (isinstance(item, str) and bool(item) and not content and names.keys() == _POSTGREST)
            elif meaning == "exit code":
                failed = type(item) is int and item != 0 and not _has_report(item, names)
            else:
                failed = name == "detail" and (_is_invalid(item) or (len(members) == 1 and isinstance(item, str)))
            is_word = meaning in ("status", "HTTP status") or name == "result"
            if failed or (is_word and not is_listed and _is_failed_word(item, is_bare=not content or is_jsend)):
                return True
        # boto3 has the status next to the content, others wrap all of it.
        inner = [names.get("responsemetadata"), *(each.item for each in content if len(content) == 1)]
        return any(self._wraps_failure(each, is_listed) for each in inner)

    def _wraps_failure(self, item: Any, is_listed: bool) -> bool:
        if not isinstance(item, dict) or self._depth >= _MAX_DEPTH:
            return False
        self._depth += 1
        is_failed = self._is_failed(_members(item), is_listed)
        self._depth -= 1
        return is_failed

    def _holds_nothing(self, members: Sequence[_Member], is_listed: bool) -> bool:
        """Return True if all content of an object is nothing, or words for nothing."""
        names = {each.name: each.item for each in members}
        if isinstance(names.get("type"), str) and (0 in _list(names.get("shape")) or names.get("length") == 0):
            # An array, a table or bytes, as they are recorded.
            return True
        if any(map(_is_done, members)) or _is_schema(names):
            return False
        content = [each for each in members if not each.is_aside]
        left = [each for each in content if not self._is_empty(each, is_alone=len(members) < 4)]
        texts = [each.item for each in left if each.meaning == "result" and isinstance(each.item, str)]
        messages = [each.item for each in members if each.is_aside and each.meaning == "message" and each.item]
        totals = _totals(members)
        if len(texts) == len(left) == 1:
            return self.is_odd_text(texts[0])
        if left:
            return _is_zero(totals) and not any(isinstance(each.item, list) for each in left)
        if any(each.item is not None for each in content) or not members:
            return True
        if content:
            # An action that worked may have nothing to say.
            is_known = any(each.meaning == "result" for each in content)
            return is_known and not any(map(_is_success, members))
        if len(messages) == 1 and not is_listed and not totals:
            return self.is_odd_text(messages[0])
        return _is_zero([*totals, *([names["total"]] if "total" in names else [])])

    def _is_empty(self, member: _Member, *, is_alone: bool) -> bool:
        item = member.item
        if self._is_nothing(item):
            return True
        if member.meaning == "echo":
            return not any(isinstance(each, list) and each for each in _list(item) or item.values())
        # Few members: a wrapper.
        return member.meaning == "result" and is_alone and isinstance(item, (dict, list)) and self.is_odd(item)

    def _is_nothing(self, item: Any) -> bool:
        """Return True for null, blank texts, and lists and objects of nothing else."""
        if not isinstance(item, (dict, list, tuple, set)):
            return item is None or (isinstance(item, str) and item.strip() in ("", "[]", "{}", "null"))
        return self._once(self._nothing, item, lambda: self._is_nothing_inside(item))

    def _is_nothing_inside(self, item: Any) -> bool:
        if isinstance(item, dict):
            return all(each is None for each in item.values()) or self._holds_nothing(_members(item), True)
        # A null in a row is a value.
        items = list(item)[:_MAX_ITEMS]
        return all(self._is_nothing(each) and not (isinstance(each, list) and None in each) for each in items)


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


def _is_failed_status(name: str, item: Any, *, has_message: bool, is_bare: bool) -> bool:
    if isinstance(item, dict):
        code = item.get("code", item.get("status"))
        return type(code) is int and code not in (0, 200) and ("message" in item or "msg" in item)
    if name == "code" and isinstance(item, str) and not item.isdigit():
        return is_bare and has_message and _ERROR_CODE.search(item) is not None
    number = int(item) if isinstance(item, str) and len(item) == 3 and item.isdecimal() else item
    return type(number) is int and 400 <= number < 600 and (name != "code" or has_message)


def _is_failed_word(item: Any, *, is_bare: bool) -> bool:
    word = re.sub(r"[^a-z]", "", item.lower()) if isinstance(item, str) and len(item) < 32 else ""
    return word in _FAILED or (is_bare and word in _FAILED_ALONE)


def _is_invalid(item: Any) -> bool:
    """Return True for FastAPI's list of what is wrong with a request."""
    return bool(_list(item)) and all(isinstance(each, dict) and "msg" in each for each in item)


def _has_report(code: int, names: Mapping[str, Any]) -> bool:
    """Return True if a program that ended with 1 has output, as test runners have."""
    said = any(isinstance(text := names.get(name), str) and text.strip() for name in _OUTPUTS)
    return code == 1 and said and not str(names.get("stderr") or "").strip()


def _is_schema(names: Mapping[str, Any]) -> bool:
    """Return True for a JSON schema, whose properties are names only."""
    return isinstance(names.get("type"), (str, list)) and isinstance(names.get("properties"), dict)


def _is_done(member: _Member) -> bool:
    """Return True for a success that needs no content: exit code 0, HTTP 201 to 299, rows that were changed."""
    name, meaning, item = member
    is_done = (meaning == "exit code" and item == 0) or (meaning == "HTTP status" and item in range(201, 300))
    # Node-postgres' rowCount is the number of rows that a statement changed or returned.
    return type(item) is int and (is_done or "affected" in name or (name == "rowcount" and item > 0))


def _is_success(member: _Member) -> bool:
    item = member.item
    if member.meaning not in ("failed if false", "HTTP status"):
        return False
    return item is True or item in (0, 200) or (isinstance(item, str) and item.lower() in _SUCCESS)


def _totals(members: Iterable[_Member]) -> list[Any]:
    """Return the totals of an object, and of what describes it."""
    found = []
    for each in members:
        if each.meaning == "total":
            found.append(each.item)
        elif each.meaning == "about" and isinstance(each.item, dict):
            found += [item for key, item in each.item.items() if _named(str(key))[1] == "total"]
    return found


def _is_zero(totals: Sequence[Any]) -> bool:
    numbers = [each.get("value") if isinstance(each, dict) else each for each in totals]
    return bool(numbers) and all(each is not False and str(each) == "0" for each in numbers)


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()
