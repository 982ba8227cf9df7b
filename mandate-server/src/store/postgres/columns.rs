//! Many rows as one array a column, which `unnest` makes rows of again.

use tokio_postgres::types::Type;

use super::super::tx::Value;
use super::link::Parameter;
use crate::error::Fault;

/// The columns of `rows`. `kinds` has a letter for each: `i` for numbers, `t` for texts, `b` for bytes.
pub(super) fn columns<R: IntoIterator<Item = Value>>(
    kinds: &str,
    rows: impl Iterator<Item = R>,
) -> Result<Vec<Parameter>, Fault> {
    let mut columns: Vec<Column> = kinds.chars().map(Column::new).collect::<Result<_, _>>()?;
    for row in rows {
        let mut values = row.into_iter();
        for column in &mut columns {
            column.push(values.next().ok_or_else(|| Fault::new("a row of too few columns"))?)?;
        }
        if values.next().is_some() {
            return Err(Fault::new("a row of too many columns"));
        }
    }
    Ok(columns.into_iter().map(Parameter::from).collect())
}

enum Column {
    Integers(Vec<Option<i64>>),
    Texts(Vec<Option<String>>),
    Blobs(Vec<Option<Vec<u8>>>),
}

impl Column {
    fn new(kind: char) -> Result<Self, Fault> {
        match kind {
            'i' => Ok(Self::Integers(Vec::new())),
            't' => Ok(Self::Texts(Vec::new())),
            'b' => Ok(Self::Blobs(Vec::new())),
            _ => Err(Fault::new("a column of an unknown kind")),
        }
    }

    fn push(&mut self, value: Value) -> Result<(), Fault> {
        match (self, value) {
            (Self::Integers(column), Value::Integer(value)) => column.push(Some(value)),
            (Self::Integers(column), Value::Null) => column.push(None),
            (Self::Texts(column), Value::Text(value)) => column.push(Some(value)),
            (Self::Texts(column), Value::Null) => column.push(None),
            (Self::Blobs(column), Value::Blob(value)) => column.push(Some(value)),
            (Self::Blobs(column), Value::Null) => column.push(None),
            (_, value) => return Err(Fault::new(format!("a column of another kind than its {value:?}"))),
        }
        Ok(())
    }
}

impl From<Column> for Parameter {
    fn from(column: Column) -> Self {
        match column {
            Column::Integers(values) => Self::array(values, Type::INT8_ARRAY),
            Column::Texts(values) => Self::array(values, Type::TEXT_ARRAY),
            Column::Blobs(values) => Self::array(values, Type::BYTEA_ARRAY),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_does_not_fit_is_refused() {
        let rows = |row: Vec<Value>| columns("it", [row].into_iter()).is_ok();
        assert!(rows(vec![1.into(), "a".into()]) && rows(vec![Value::Null, Value::Null]));
        assert!(!rows(vec![1.into()]) && !rows(vec![1.into(), 1.into()]));
        assert!(!rows(vec![1.into(), "a".into(), "b".into()]));
        assert!(columns("x", std::iter::empty::<[Value; 0]>()).is_err());
    }
}
