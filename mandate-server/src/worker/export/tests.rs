//! A file gets its name once its content is what was written.

use std::io::Write as _;

use super::*;

#[tokio::test]
async fn a_file_with_another_hash_gets_no_name() {
    let folder = tempfile::tempdir().unwrap();
    let exports = Exports::new(folder.path().join("exports"));
    let written = Written { rows: 1, sha256: Sha256::digest(b"one").into() };
    for (number, (content, is_sound)) in [("one", true), ("onf", false), ("", false)].into_iter().enumerate()
    {
        let id = ExportId::from_bytes([u8::try_from(number).unwrap(); 16]);
        let mut file = exports.unfinished(id).unwrap();
        file.write_all(content.as_bytes()).unwrap();
        let compared = Content { file, written }.compared();
        match compared {
            Ok(content) => _ = content.finish(&exports, id).await.unwrap(),
            Err(fault) => assert!(fault.to_string().ends_with("is not what was written"), "{fault}"),
        }
        assert_eq!(exports.file(id).exists(), is_sound, "{content:?}");
    }
    // What was refused is gone.
    assert_eq!(fs::read_dir(&exports.directory).unwrap().count(), 1);
}
