//! A file of tensors (safetensors): the length of a head, the head in JSON, the numbers.

use std::collections::HashMap;

use serde_json::Value;

/// Tensors of floats by name.
pub type Tensors = HashMap<String, Vec<f32>>;

/// The head is larger in no file that is meant.
const HEAD_BYTES_MAX: usize = 1024 * 1024;

/// Reads all tensors of floats; `None` if the bytes make no sense.
pub fn read(bytes: &[u8]) -> Option<Tensors> {
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    if length > HEAD_BYTES_MAX {
        return None;
    }
    let (head, data) = rest.split_at_checked(length)?;
    let head: Value = serde_json::from_slice(head).ok()?;
    let mut tensors = Tensors::new();
    for (name, about) in head.as_object()? {
        if about["dtype"] != "F32" {
            continue;
        }
        let place = |at: usize| about["data_offsets"][at].as_u64()?.try_into().ok();
        let (from, to): (usize, usize) = (place(0)?, place(1)?);
        let numbers = crate::scan::from_bytes(data.get(from..to)?);
        tensors.insert(name.clone(), numbers);
    }
    Some(tensors)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(head: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = (head.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(head.as_bytes());
        bytes.extend_from_slice(data);
        bytes
    }

    #[test]
    fn what_makes_sense_is_read() {
        let head = r#"{"__metadata__":{},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
        let data: Vec<u8> = [1.5_f32, -2.0]
            .iter()
            .flat_map(|n| n.to_le_bytes())
            .collect();
        let whole = file(head, &data);
        assert_eq!(read(&whole).expect("tensors")["a"], [1.5, -2.0]);
        for cut in 0..whole.len() {
            assert_eq!(read(&whole[..cut]), None, "{cut}");
        }
        assert_eq!(read(&u64::MAX.to_le_bytes()), None);
        let head = r#"{"a":{"dtype":"F32","data_offsets":[8,0]}}"#;
        assert_eq!(read(&file(head, &data)), None);
    }
}
