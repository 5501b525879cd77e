from __future__ import annotations

import pytest

from tests.bench.bench_documents import DOCUMENTS, measure_here


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_large_document_is_measured_from_file_to_file(name: str) -> None:
    cost = measure_here(name, 0.0005)
    assert cost.is_identical
    assert cost.units > 20
    assert cost.total_s > 0
    assert cost.peak_bytes > 0
