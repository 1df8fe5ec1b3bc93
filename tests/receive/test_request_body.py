"""Bodies that are compressed: a whole one is returned, one that is cut off or made to take long is refused."""

from __future__ import annotations

import gzip
import os
import zlib

import pytest
import zstandard

from otel_rollout.folder import BodyTooLargeError, decompress

LIMIT = 2**22
COMPRESS = {"gzip": gzip.compress, "zstd": zstandard.ZstdCompressor().compress, "deflate": zlib.compress}


@pytest.mark.parametrize("encoding", COMPRESS)
class TestDecompressing:
    """Every encoding."""

    def test_members_are_joined(self, encoding) -> None:
        """Several members give their data one behind the other."""
        data = [b"", b"x", os.urandom(300_000), b"z" * 10**6]
        body = b"".join(map(COMPRESS[encoding], data))
        assert decompress(body, encoding, LIMIT) == b"".join(data)

    @pytest.mark.parametrize("missing", [1, 3, 1000, 150_000])
    def test_a_body_that_is_cut_off(self, encoding, missing) -> None:
        """It is refused: what is left may be a whole request with fewer spans."""
        body = COMPRESS[encoding](os.urandom(300_000))
        with pytest.raises(ValueError, match="cut off"):
            decompress(body[:-missing], encoding, LIMIT)

    def test_very_many_members(self, encoding) -> None:
        """They are refused: the rest of the body would be copied for each."""
        with pytest.raises(ValueError, match="members"):
            decompress(COMPRESS[encoding](b"") * 2000, encoding, LIMIT)

    def test_a_body_that_claims_little(self, encoding) -> None:
        """Decompressing ends at the limit."""
        with pytest.raises(BodyTooLargeError):
            decompress(COMPRESS[encoding](bytes(100 * LIMIT)), encoding, LIMIT)
