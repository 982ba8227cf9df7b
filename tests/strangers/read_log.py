"""Verifies a log with aics-tlog: read_log.py URL LOG_KEY [WITNESS_KEY ...], with proofs of entries on standard input.

The proofs are a JSON array of pairs: the number of an entry, and the hashes in hexadecimal. Each witness must have cosigned the
checkpoint. Prints size, root and the number of proofs; ends with an error if anything does not verify.
"""

import json
import sys

from aics_tlog import (
    HttpTileReader,
    TileVerificationError,
    VerifiedTileReader,
    audit_tiles,
    consistency_proof_from_tiles,
    parse_note,
    parse_vkey,
    tree_root_from_tiles,
    verify_checkpoint,
    verify_consistency,
    verify_leaf_inclusion,
)


def must(holds, what):
    if not holds:
        sys.exit(f"refused: {what}")


url, log_key, *witness_keys = sys.argv[1:]
reader = HttpTileReader(url, proxies={})
witnesses = [parse_vkey(key) for key in witness_keys]
note = parse_note(reader.read_checkpoint())
checkpoint = verify_checkpoint(note, parse_vkey(log_key), witnesses, quorum=len(witnesses))
must(checkpoint.ok, f"checkpoint: {checkpoint.error}")
size, root = checkpoint.size, checkpoint.root

audit_tiles(reader, size, root)
try:
    # A reader of its own: it does not go back to a source whose tiles it has refused.
    audit_tiles(HttpTileReader(url, proxies={}), size, bytes([root[0] ^ 1]) + root[1:])
    sys.exit("refused: the tiles are of another root too")
except TileVerificationError:
    pass

tiles = VerifiedTileReader(reader, size, root)
for old in {1, size // 2, size - 1, size} - {0}:
    old_root = tree_root_from_tiles(tiles, old, size)
    proof = consistency_proof_from_tiles(tiles, old, size)
    must(verify_consistency(old, size, old_root, root, proof), f"consistency with {old}")

proofs = json.load(sys.stdin)
for index, hashes in proofs:
    entry, proof = tiles.entry(index), [bytes.fromhex(one) for one in hashes]
    must(verify_leaf_inclusion(entry, index, size, proof, root), f"entry {index}")
    must(not verify_leaf_inclusion(entry, index + 1, size, proof, root), f"entry {index} in another place")
print(size, root.hex(), len(proofs))
