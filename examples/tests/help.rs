//! The commands say how they are used. Tests in this package also make cargo build them, which the tests in `tests/it` run.

use std::process::Command;

#[test]
fn each_command_prints_its_options() {
    for (binary, option) in
        [(env!("CARGO_BIN_EXE_load"), "--base-url"), (env!("CARGO_BIN_EXE_receiver"), "--issuer")]
    {
        let output = Command::new(binary).arg("--help").env_clear().output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && help.contains(option), "{binary}: {help}");
    }
}
