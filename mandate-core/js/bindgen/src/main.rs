//! Writes `core.js` and `core_bg.wasm` from the WebAssembly that cargo has built: what the command `wasm-bindgen` does, which
//! takes much longer to build.
//!
//! `bindgen INPUT.wasm FOLDER`

use std::error::Error;

use wasm_bindgen_cli_support::Bindgen;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(input), Some(folder)) = (args.next(), args.next()) else {
        return Err("usage: bindgen INPUT.wasm FOLDER".into());
    };
    let mut bindgen = Bindgen::new();
    bindgen.input_path(input).out_name("core").web(true)?.typescript(false);
    bindgen.remove_name_section(true).remove_producers_section(true).generate(folder)?;
    Ok(())
}
