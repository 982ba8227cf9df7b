//! Roots, proofs and tiles against a naive tree.

use proptest::prelude::*;

use super::*;

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// The tree with which implementations of RFC 6962 are commonly tested.
#[test]
fn roots_are_the_published_ones() {
    let entries =
        ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"];
    let roots = [
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
        "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
        "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
        "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
        "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
    ];
    for (size, wanted) in roots.iter().enumerate() {
        let leaves = entries[..size].iter().map(|entry| Hash::of_leaf(&unhex(entry)));
        assert_eq!(root(leaves).as_bytes().to_vec(), unhex(wanted), "{size}");
    }
}

#[test]
fn all_trees_up_to_300_leaves() {
    let all = leaves(300);
    let reader = AllLeaves(all.clone());
    let mut tree = Frontier::default();
    for size in 0..=300_u64 {
        let count = usize::try_from(size).unwrap();
        let root = naive_root(&all[..count]);
        assert_eq!(tree.root(), root, "{size}");
        assert_eq!(Frontier::new(size, tree.hashes().to_vec()).unwrap(), tree);
        assert_eq!(Frontier::read(size, &reader), Ok(tree.clone()));
        // Each index up to a size, and a few of each larger one.
        for index in (0..size).filter(|index| size <= 40 || index % 37 == 0 || index + 2 > size) {
            let proof = prove_inclusion(index, size, &reader).unwrap();
            assert_eq!(verify_inclusion(&leaf(index), index, size, &proof, &root), Ok(()), "{index} {size}");
            let other = verify_inclusion(&leaf(index + 1), index, size, &proof, &root);
            assert_eq!(other, Err(MerkleRefused::Root));
        }
        for old in (0..=size).filter(|old| size <= 40 || old % 29 == 0 || old.is_power_of_two()) {
            let proof = prove_consistency(old, size, &reader).unwrap();
            let old_root = naive_root(&all[..usize::try_from(old).unwrap()]);
            assert_eq!(verify_consistency((old, &old_root), (size, &root), &proof), Ok(()), "{old} {size}");
        }
        if size < 300 {
            tree.append(leaf(size), |node, hash| assert_eq!(reader.node(node), Ok(hash))).unwrap();
        }
    }
}

#[test]
fn a_proof_is_for_its_index_its_sizes_and_its_roots_alone() {
    let all = leaves(20);
    let reader = AllLeaves(all.clone());
    let roots: Vec<_> = (0..=20).map(|size| naive_root(&all[..size])).collect();
    for size in 1..=20_u64 {
        let root = &roots[usize::try_from(size).unwrap()];
        for index in 0..size {
            let proof = prove_inclusion(index, size, &reader).unwrap();
            // A checkpoint signs size and root together. Under them a proof is for one index.
            for other in 0..=size {
                let verified = verify_inclusion(&leaf(index), other, size, &proof, root).is_ok();
                assert_eq!(verified, other == index, "{index} {other} {size}");
            }
            for place in 0..proof.len() {
                let mut other = proof.clone();
                other[place] = leaf(99);
                assert!(verify_inclusion(&leaf(index), index, size, &other, root).is_err());
                other.remove(place);
                let refused = verify_inclusion(&leaf(index), index, size, &other, root).unwrap_err();
                assert_eq!(refused.name(), "proof_length");
            }
        }
        for old in 1..size {
            let proof = prove_consistency(old, size, &reader).unwrap();
            let old_root = &roots[usize::try_from(old).unwrap()];
            for place in 0..proof.len() {
                let mut other = proof.clone();
                other[place] = leaf(99);
                assert!(verify_consistency((old, old_root), (size, root), &other).is_err());
            }
            for other in (0..=20).filter(|other| *other != old) {
                let root_of_other = &roots[usize::try_from(other).unwrap()];
                let refused = verify_consistency((old, root_of_other), (size, root), &proof);
                assert!(refused.is_err(), "{old} {size} {other}");
            }
        }
    }
    let refused = verify_consistency((3, &roots[3]), (2, &roots[2]), &[]).unwrap_err();
    assert_eq!(refused, MerkleRefused::Sizes { old: 3, new: 2 });
    let empty = Hash::of_empty_tree();
    assert_eq!(verify_consistency((0, &empty), (2, &roots[2]), &[]), Ok(()));
    assert!(verify_consistency((0, &roots[1]), (2, &roots[2]), &[]).is_err());
    assert!(verify_consistency((0, &roots[1]), (0, &roots[1]), &[]).is_err());
    assert!(verify_consistency((2, &roots[1]), (2, &roots[2]), &[]).is_err());
    assert!(verify_consistency((0, &empty), (2, &roots[2]), &[empty]).is_err());
}

/// The tiles of a tree as a server keeps them, made by appending.
fn tiles(size: u64) -> std::collections::BTreeMap<(u8, u64), Vec<u8>> {
    let (mut tree, mut tiles) = (Frontier::default(), std::collections::BTreeMap::new());
    for index in 0..size {
        tree.append(leaf(index), |node, hash| {
            if node.level % 8 == 0 {
                let tile: &mut Vec<u8> = tiles.entry((node.level / 8, node.index / 256)).or_default();
                tile.extend_from_slice(hash.as_bytes());
            }
        })
        .unwrap();
    }
    tiles
}

fn insert(set: &mut TileSet, tiles: &std::collections::BTreeMap<(u8, u64), Vec<u8>>, needed: &Tile) {
    let TileKind::Hashes { level } = needed.kind else { panic!() };
    let bytes = &tiles[&(level, needed.index)];
    set.insert(*needed, &bytes[..usize::from(needed.width) * HASH_BYTES]).unwrap();
}

#[test]
fn proofs_are_made_from_the_tiles_that_they_need() {
    let (size, grown) = (66_000, 70_000);
    let (all, stored) = (leaves(grown), tiles(grown));
    let root_at = |size: u64| root(all[..usize::try_from(size).unwrap()].iter().copied());
    let (old_root, new_root) = (root_at(size), root_at(grown));
    for index in [0, 255, 256, 65_535, 65_536, 65_999, 69_887, 69_999] {
        let mut set = TileSet::new(grown);
        for needed in set.for_inclusion(index) {
            insert(&mut set, &stored, &needed);
        }
        let proof = prove_inclusion(index, grown, &set).unwrap();
        assert_eq!(verify_inclusion(&leaf(index), index, grown, &proof, &new_root), Ok(()), "{index}");
    }
    let mut set = TileSet::new(grown);
    assert!(prove_consistency(size, grown, &set).is_err());
    for needed in set.for_consistency(size) {
        insert(&mut set, &stored, &needed);
    }
    let proof = prove_consistency(size, grown, &set).unwrap();
    assert_eq!(verify_consistency((size, &old_root), (grown, &new_root), &proof), Ok(()));

    let widths = |level: u8| {
        let full = |tile: &Tile| tile.kind == TileKind::Hashes { level } && tile.is_full();
        Tile::between(0, grown).filter(full).count()
    };
    assert_eq!((widths(0), widths(1), widths(2)), (273, 1, 0));
    for tile in Tile::between(0, grown) {
        assert_eq!(Tile::parse(&tile.path()), Ok(tile));
        assert!(tile.is_within(grown) && (!tile.is_full() || tile.is_within(grown + 1)));
        if let TileKind::Hashes { level } = tile.kind {
            assert_eq!(stored[&(level, tile.index)].len(), usize::from(tile.width) * HASH_BYTES);
        }
    }
}

proptest! {
    #[test]
    fn random_trees(size in 1_u64..3_000, index in any::<u64>(), old in any::<u64>(), flip in any::<(usize, u8)>()) {
        let (index, old) = (index % size, old % size + 1);
        let all = leaves(size);
        let reader = AllLeaves(all.clone());
        let (root, old_root) = (naive_root(&all), naive_root(&all[..usize::try_from(old).unwrap()]));
        let mut proof = prove_inclusion(index, size, &reader).unwrap();
        prop_assert_eq!(verify_inclusion(&leaf(index), index, size, &proof, &root), Ok(()));
        let mut consistency = prove_consistency(old, size, &reader).unwrap();
        prop_assert_eq!(verify_consistency((old, &old_root), (size, &root), &consistency), Ok(()));
        for list in [&mut proof, &mut consistency].into_iter().filter(|list| !list.is_empty()) {
            let place = flip.0 % list.len();
            let mut bytes = *list[place].as_bytes();
            bytes[usize::from(flip.1 >> 3)] ^= 1 << (flip.1 & 7);
            list[place] = Hash::new(bytes);
        }
        prop_assert!(proof.is_empty() || verify_inclusion(&leaf(index), index, size, &proof, &root).is_err());
        prop_assert!(
            consistency.is_empty() || verify_consistency((old, &old_root), (size, &root), &consistency).is_err()
        );
    }

    /// In trees far larger than can be built: the nodes of all proofs are in the tree, and few.
    #[test]
    fn proofs_in_the_largest_trees_are_short(size in 1_u64..=MAX_TREE_SIZE, index in any::<u64>()) {
        let (index, old) = (index % size, index % size + 1);
        for node in [inclusion_nodes(index, size), consistency_nodes(old, size), Frontier::nodes(size)].concat() {
            prop_assert!(node.first_leaf() + node.leaves() <= size);
            let tile = Tile::of_node(node, size).unwrap();
            prop_assert_eq!(Tile::parse(&tile.path()), Ok(tile));
        }
        let (leaf, root) = (Hash::of_leaf(b""), Hash::of_empty_tree());
        let refused = verify_inclusion(&leaf, index, size, &[root; 64], &root).unwrap_err();
        let short = matches!(refused, MerkleRefused::Length { expected, .. } if expected <= MAX_PROOF_HASHES);
        prop_assert!(short);
        prop_assert!(verify_consistency((old, &root), (size, &leaf), &[root; 64]).is_err());
    }
}

#[test]
fn a_full_log_is_a_refusal() {
    let hashes = vec![leaf(0); 63];
    let mut tree = Frontier::new(MAX_TREE_SIZE, hashes.clone()).unwrap();
    assert_eq!(tree.append(leaf(0), |_, _| {}), Err(TreeFull));
    assert_eq!(Frontier::new(MAX_TREE_SIZE + 1, vec![leaf(0)]), None);
}
