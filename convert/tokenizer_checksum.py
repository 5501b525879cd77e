"""Which published tokenizer a vocabulary is, told by how it splits one text that strains every rule of splitting.

llama.cpp names pre-tokenizers by a hash of the ids of this very text; the ids of both tokenizers of the family are
known by that hash only. A file made of their vocabulary whose ids have another hash splits text differently.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

CHECK_TEXT = (
    "\n \n\n \n\n\n \t \t\t \t\n  \n   \n    \n     \n🚀 (normal) 😶\u200d🌫️ (multiple emojis concatenated) ✅ 🦙🦙 "
    "3 33 333 3333 33333 333333 3333333 33333333 3.3 3..3 3...3 កាន់តែពិសេសអាច😁 ?我想在apple工作1314151天～ "
    "------======= нещо на Български ''''''```````\"\"\"\"......!!!!!!?????? "
    "I've been 'told he's there, 'RE you sure? 'M not sure I'll make it, 'D you like some tea? We'Ve a'lL"
)
"""As in llama.cpp's `conversion/base.py`."""
CHECKSUMS: Mapping[str, str] = {
    "hunyuan": "7e57df22b1fe23a7b1e1c7f3dc4e3f96d43a4eb0836d0c6bdc3436d7b2f1c664",
    "hunyuan-dense": "bba3b3366b646dbdded5dbc42d59598b849371afc42f7beafa914afaa5b70aa6",
}
"""`tokenizer.ggml.pre` -> checksum of the published tokenizer (llama.cpp's `get_vocab_base_pre`)."""
PUBLISHED_TOKENS = 120_000
"""A vocabulary with fewer tokens is neither of the two."""


def checksum(token_ids: Sequence[int]) -> str:
    """Return llama.cpp's checksum of the ids of `CHECK_TEXT`, no BOS among them."""
    return hashlib.sha256(str(list(token_ids)).encode()).hexdigest()
